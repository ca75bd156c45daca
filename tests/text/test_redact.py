"""Redaction: no secret gets through, nothing else is touched.

Every secret here is made at run time from parts, so that no scanner of a git host mistakes this
file for a leak.
"""

from __future__ import annotations

import base64
import json
import random
import re
import subprocess
import sys
import time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from timing import assert_linear

from ralph.text.redact import redact, redact_tree

LOWER, UPPER, DIGITS = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
ALNUM = LOWER + UPPER + DIGITS
URL64 = ALNUM + "-_"
BASE64 = ALNUM + "+/"
HEX = DIGITS + "abcdef"


def made(alphabet: str, length: int, *, seed: int = 7) -> str:
    """A random string that is the same in every run, with a letter or digit at both ends."""
    chosen = random.Random(f"{alphabet}{length}{seed}").choices(alphabet, k=length)
    return "7" + "".join(chosen[1:-1]) + ("d" if "d" in alphabet else "D")


def jwt() -> str:
    return "ey" + "J" + made(URL64, 33) + ".ey" + "J" + made(URL64, 60) + "." + made(URL64, 43)


# kind and secret, for every shape that is known by its looks alone.
KNOWN: dict[str, tuple[str, str]] = {
    "aws access key": ("aws-key", "AK" + "IA" + made(UPPER + "234567", 16)),
    "aws session key": ("aws-key", "AS" + "IA" + made(UPPER + "234567", 16)),
    **{
        f"github {a}": ("github-token", a + "_" + made(ALNUM, 36))
        for a in ("ghp", "gho", "ghu", "ghs", "ghr")
    },
    "github fine-grained": (
        "github-token",
        "github_" + "pat_" + made(ALNUM, 22) + "_" + made(ALNUM, 59),
    ),
    "gitlab personal": ("gitlab-token", "glp" + "at-" + made(URL64, 20)),
    "gitlab deploy": ("gitlab-token", "gld" + "t-" + made(URL64, 20)),
    "slack bot": ("slack-token", "xox" + "b-" + made(DIGITS, 12) + "-" + made(ALNUM, 24)),
    "slack user": ("slack-token", "xox" + "p-" + made(DIGITS, 12) + "-" + made(HEX, 32)),
    "slack app": ("slack-token", "xap" + "p-1-A" + made(UPPER, 9) + "-" + made(HEX, 64)),
    "slack webhook": (
        "slack-webhook",
        "hooks.slack"
        + ".com/services/T"
        + made(UPPER, 8)
        + "/B"
        + made(UPPER, 8)
        + "/"
        + made(ALNUM, 24),
    ),
    "discord webhook": (
        "discord-webhook",
        "discord" + ".com/api/webhooks/" + made(DIGITS, 18) + "/" + made(URL64, 68),
    ),
    "discord bot": (
        "discord-token",
        "M" + made(ALNUM, 23) + "." + made(ALNUM, 6) + "." + made(URL64, 38),
    ),
    "telegram bot": (
        "telegram-token",
        made(DIGITS, 9).replace("D", "1") + ":A" + "A" + made(URL64, 33),
    ),
    "stripe live": ("stripe-key", "sk_" + "live_" + made(ALNUM, 24)),
    "stripe restricted": ("stripe-key", "rk_" + "live_" + made(ALNUM, 24)),
    "stripe test": ("stripe-key", "sk_" + "test_" + made(ALNUM, 24)),
    "openai": ("openai-key", "sk" + "-" + made(ALNUM, 48)),
    "openai project": ("openai-key", "sk-" + "proj-" + made(URL64, 120)),
    "anthropic": ("anthropic-key", "sk-" + "ant-api03-" + made(URL64, 93) + "AA"),
    "google api": ("google-key", "AI" + "za" + made(URL64, 35)),
    "google oauth": ("google-token", "ya" + "29." + made(URL64, 60)),
    "npm": ("npm-token", "np" + "m_" + made(ALNUM, 36)),
    "pypi": ("pypi-token", "py" + "pi-AgE" + "IcHlwaS5vcmc" + made(URL64, 80)),
    "hugging face": ("huggingface-token", "h" + "f_" + made(LOWER + UPPER, 34).replace("7", "Q")),
    "digitalocean": ("digitalocean-token", "dop" + "_v1_" + made(HEX, 64)),
    "sendgrid": ("sendgrid-key", "S" + "G." + made(URL64, 22) + "." + made(URL64, 43)),
    "twilio": ("twilio-key", "S" + "K" + made(HEX, 32)),
    "mailgun": ("mailgun-key", "ke" + "y-" + made(HEX, 32)),
    "mailchimp": ("mailchimp-key", made(HEX, 32) + "-u" + "s12"),
    "databricks": ("databricks-token", "da" + "pi" + made(HEX, 32)),
    "shopify": ("shopify-token", "shp" + "at_" + made(HEX, 32)),
    "square": ("square-token", "sq0" + "atp-" + made(URL64, 22)),
    "square access": ("square-token", "EA" + "AA" + made(URL64, 60)),
    "doppler": ("doppler-token", "dp" + ".pt." + made(ALNUM, 43)),
    "vault": ("vault-token", "hv" + "s." + made(URL64, 90)),
    "linear": ("linear-key", "lin" + "_api_" + made(ALNUM, 40)),
    "notion": ("notion-token", "nt" + "n_" + made(ALNUM, 46)),
    "notion old": ("notion-token", "secr" + "et_" + made(ALNUM, 43)),
    "sentry": ("sentry-token", "sntr" + "yu_" + made(HEX, 64)),
    "age": ("age-key", "AGE-SEC" + "RET-KEY-1" + made(UPPER + DIGITS, 58)),
    "azure secret": ("azure-secret", "aB1" + "8Q" + "~" + made(ALNUM, 34)),
    "terraform": ("terraform-token", made(ALNUM, 14) + ".atlas" + "v1." + made(URL64, 60)),
    "grafana": ("grafana-token", "gl" + "sa_" + made(ALNUM, 32) + "_" + made(HEX, 8)),
    "docker": ("docker-token", "dckr" + "_pat_" + made(URL64, 27)),
    "planetscale": ("planetscale-token", "pscale" + "_pw_" + made(URL64, 43)),
    "supabase": ("supabase-key", "sb" + "p_" + made(HEX, 40)),
    "atlassian": ("atlassian-token", "ATA" + "TT3x" + made(URL64, 180)),
    "groq": ("groq-key", "gs" + "k_" + made(ALNUM, 52)),
    "replicate": ("replicate-token", "r" + "8_" + made(ALNUM, 37)),
    "tailscale": ("tailscale-key", "tsk" + "ey-auth-" + made(ALNUM, 30)),
    "heroku new": ("heroku-key", "HR" + "KU-" + made(URL64, 60)),
    "bcrypt hash": ("password-hash", "$2" + "b$12$" + made(ALNUM + "./", 53)),
    "twitch": ("twitch-key", "oau" + "th:" + made(LOWER + DIGITS, 30)),
    "spaces": ("digitalocean-key", "DO" + "00" + made(UPPER + DIGITS, 16)),
    "grafana legacy": ("grafana-token", "eyJr" + "Ijoi" + made(ALNUM, 80)),
    "riot": ("riot-key", "RGA" + "PI-0dd1cbb4-45fe-4f5a-9a5b-" + made(HEX, 12)),
    "wakatime": ("wakatime-key", "wak" + "a_0dd1cbb4-45fe-4f5a-9a5b-" + made(HEX, 12)),
    "helicone": ("helicone-key", "sk-hel" + "icone-" + made(LOWER, 7) + "-" + made(LOWER, 7)),
    "chromatic": ("chromatic-token", "ch" + "pt_" + made(HEX, 15)),
    "scaleway": ("scaleway-key", "SC" + "W" + made(UPPER + DIGITS, 17)),
    "infura": ("infura-key", "infura" + ".io/v3/" + made(HEX, 32)),
    "convex": ("convex-key", "pro" + "d:happy-fox-123|eyJ2" + made(BASE64, 60)),
    "yandex": ("yandex-key", "Y" + "C" + made(URL64, 38)),
    "slack workflow": ("slack-token", "xw" + "fp-" + made(ALNUM, 40)),
    "databricks service": ("databricks-token", "do" + "se" + made(HEX, 32)),
    "aiven": ("aiven-password", "AV" + "NS_" + made(URL64, 19)),
    "vercel": ("vercel-token", "vc" + "p_" + made(ALNUM, 56)),
    "trello": ("trello-token", "AT" + "TA" + made(HEX, 64)),
    "stripe intent": (
        "stripe-key",
        "pi_" + made(ALNUM, 24) + "_sec" + "ret_" + made(ALNUM, 25),
    ),
    "azure ai": ("azure-key", made(ALNUM, 52) + "JQQ" + "J99BFACYeBjFXJ3w3AAAAACOGab12"),
    "other sk": ("openai-key", "sk" + "-hc-v1-" + made(HEX, 64)),
    "docker swarm": (
        "docker-token",
        "SWM" + "TKN-1-" + made(LOWER + DIGITS, 50) + "-" + made(LOWER + DIGITS, 25),
    ),
    "jwt": ("jwt", jwt()),
    "jwt cut off": ("jwt", jwt()[:70]),
}

SURROUNDINGS = {
    "alone": ("", ""),
    "end of text": ("the value was ", ""),
    "python": ('client = connect("', '", retries=3)\n'),
    "named in code": ("token = '", "'"),
    "json": ('{"name": "ci", "value": "', '", "scopes": ["read"]}'),
    "json in json": ('{"body": "{\\"api_key\\": \\"', '\\"}"}'),
    "escaped newline": ("first line\\n", "\\nlast line"),
    "yaml": ("env:\n  deploy_token: ", "\n  region: eu\n"),
    "shell": ("export DEPLOY_TOKEN=", "\nmake deploy"),
    "log line": ("2024-05-01 12:00:00 ERROR rejected (", ") after 3 attempts"),
    "url query": ("GET https://api.example.com/v1/things?apikey=", "&page=2 HTTP/1.1"),
    "markdown": ("Use `", "` for now."),
    "in colour": ("\x1b[31m", "\x1b[0m done"),
    "other letters": ("密钥是", "。"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_shape_is_replaced_wherever_it_stands(name: str) -> None:
    kind, secret = KNOWN[name]
    for place, (before, after) in SURROUNDINGS.items():
        assert redact(before + secret + after) == f"{before}[redacted:{kind}]{after}", place


PASSWORD, LONG = "Tr0ub4" + "dor&3", made(ALNUM, 32)
FORTY = made(BASE64, 40)
BASIC = "dXNlcjpo" + "dW50ZXIy"

# text with the secret as {}, the secret, the kind.
ANNOUNCED: list[tuple[str, str, str]] = [
    ("password={}", "hunter2" + "secret", "password"),
    ("PASSWORD: {}", "s3cr3t" + "pass", "password"),
    ("password={}", "mysecret" + "pw1", "password"),
    ("PASSWORD={}", "changeme" + "99", "password"),
    ('password = "{}"', PASSWORD, "password"),
    ("password='{}'", "hunt" + "er2", "password"),
    ('password = "{}"', "sword" + "fish", "password"),
    ('def connect(password: str = "{}") -> None:', PASSWORD, "password"),
    ('const dbPassword: string = "{}";', PASSWORD, "password"),
    ('password := "{}"', PASSWORD, "password"),
    ("'password' => '{}',", PASSWORD, "password"),
    ('{{"user": "bob", "password": "{}"}}', PASSWORD, "password"),
    ('{{\\"password\\": \\"{}\\"}}', PASSWORD, "password"),
    ('os.environ["DB_PASSWORD"] = "{}"', PASSWORD, "password"),
    ('if password == "{}":', PASSWORD, "password"),
    ('setPassword("{}")', PASSWORD, "password"),
    ("define('DB_PASSWORD', '{}');", PASSWORD, "password"),
    ("password: {}\n", "hunt" + "er2", "password"),
    ("password: {}\n", "sword" + "fish", "password"),
    ("  db_password: {}  # rotate", PASSWORD, "password"),
    ("PASSWORD: {}", PASSWORD, "password"),
    ("password = {}\nhost = h", "hunt" + "er2", "password"),
    ("DB_PASSWORD={}\nDB_HOST=h", "sword" + "fish", "password"),
    ("PGPASSWORD={} psql -h db", "sword" + "fish", "password"),
    ("POSTGRES_PASSWORD={}", "p@ss,w0rd;1&x", "password"),
    ("ENV ADMIN_PASSWORD {}", "hunt" + "er2", "password"),
    ("docker run -e MYSQL_ROOT_PASSWORD={} mysql", "hunt" + "er2", "password"),
    ("- name: DB_PASSWORD\n  value: {}\n", "hunt" + "er2", "password"),
    ('{{"name": "DB_PASSWORD", "value": "{}"}}', PASSWORD, "password"),
    ('<input name="password" value="{}">', PASSWORD, "password"),
    ("<password>{}</password>", "hunt" + "er2", "password"),
    ("mytool --password {} --verbose", "sword" + "fish", "password"),
    ("mytool --password={}", "hunt" + "er2", "password"),
    ('mytool --db-password "{}"', PASSWORD, "password"),
    ("Server=db;User Id=sa;Password={};Encrypt=yes", "hunt" + "er2", "password"),
    ("jdbc:mysql://db/app?user=app&password={}&ssl=true", "hunt" + "er2", "password"),
    ("login failed (user=bob, password={})", "hunt" + "er2", "password"),
    ("The password is {}.", "hunt" + "er2", "password"),
    ('the password "{}" was refused', "hunt" + "er2", "password"),
    ("CREATE USER bob IDENTIFIED BY '{}';", "sword" + "fish", "password"),
    ("CREATE ROLE bob WITH PASSWORD '{}';", "hunt" + "er2", "password"),
    ("machine example.com login bob password {}", "sword" + "fish", "password"),
    ("machine example.com\n  login bob\n  password {}\n", "sword" + "fish", "password"),
    ("curl -u bob:{} https://example.com", "sword" + "fish", "password"),
    ('curl -sS --user "bob:{}" https://example.com', PASSWORD, "password"),
    ("sshpass -p {} ssh bob@host", "sword" + "fish", "password"),
    ("mysql -uroot -p{} app", "sword" + "fish", "password"),
    ("docker login -u bob -p {} registry", "sword" + "fish", "password"),
    ("smtp_pass = '{}'", "hunt" + "er2", "password"),
    ('{{"user": "bob", "pass": "{}"}}', "hunt" + "er2", "password"),
    ("passphrase: '{}'", "correct horse b4ttery staple", "password"),
    ("passphrase = '{}'", "correct horse battery staple", "password"),
    ("passphrase: '{}'", "my dog has 3 fleas", "password"),
    ('{{"passphrase":"{}"}}', "open sesame 42", "password"),
    ('DB_PASSWORD="{}"', "correct horse battery staple", "password"),
    ('{{"password": "{}"}}', "correct horse battery staple", "password"),
    ("passwd = '{}'", "marble canyon ferry", "password"),
    ('mytool --password "{}"', "blue whale river 7", "password"),
    ("**Password:** {}", "hunt" + "er2", "password"),
    ("| password | {} |", "hunt" + "er2", "password"),
    ("[sudo] password for bob: {}", "hunt" + "er2", "password"),
    ("the password was changed to {}", "hunt" + "er2", "password"),
    ("body: user%3Dbob%26password%3D{}", "hunt" + "er2", "password"),
    ("password = SecretStr('{}')", "hunt" + "er2", "password"),
    ('["--password", "{}"]', "sword" + "fish", "password"),
    ("    MYSQL_PASSWORD: {}", "post" + "gres", "password"),
    ('<property name="password">{}</property>', "hunt" + "er2", "password"),
    ("setenv DB_PASSWORD {}", "sword" + "fish", "password"),
    ("HMAC_KEY={}", made(HEX, 32), "high-entropy"),
    ("token {} has expired", made(ALNUM, 24), "token"),
    ("AWS_SESSION_TOKEN={}", made(BASE64, 900), "token"),
    ("curl -b 'sid={}' https://example.com", made(HEX, 32), "cookie"),
    ("api_key={}", LONG, "api-key"),
    ("API_KEY={}", LONG, "api-key"),
    ('apiKey: "{}",', LONG, "api-key"),
    ("X-Api-Key: {}", LONG, "api-key"),
    ("client.api_key = '{}'", "abc123" + "def456", "api-key"),
    ("SECRET_KEY = '{}'", "django-inse" + "cure-4x!k2", "api-key"),
    ("DefaultEndpointsProtocol=https;AccountKey={};", made(BASE64, 86) + "==", "api-key"),
    ("Endpoint=sb://x/;SharedAccessKey={}", made(BASE64, 43) + "=", "api-key"),
    ("PrivateKey = {}", made(BASE64, 43) + "=", "api-key"),
    ("HEROKU_API_KEY={}", "0dd1cbb4-45fe-4f5a-9a5b-" + made(HEX, 12), "api-key"),
    ("client_secret: {}", made(URL64, 24), "secret"),
    ('"clientSecret": "{}"', made(ALNUM, 24), "secret"),
    ("JWT_SECRET={}", "keepit" + "safe", "secret"),
    ("export FOO_TOKEN={}", "abc123" + "def456", "token"),
    ("//registry.example.com/:_authToken={}", made(HEX, 36), "token"),
    ("https://example.com/cb?access_token={}&state=1", made(ALNUM, 30), "token"),
    ("PRIVATE-TOKEN: {}", made(ALNUM, 20), "token"),
    ("aws_secret_access_key = {}", FORTY, "aws-secret-key"),
    ("AWS_SECRET_ACCESS_KEY={}", FORTY, "aws-secret-key"),
    ('"SecretAccessKey": "{}"', FORTY, "api-key"),
    ("STRIPE_KEY = '{}'", made(ALNUM, 26), "high-entropy"),
    ('{{"auths": {{"r": {{"auth": "{}"}}}}}}', BASIC, "high-entropy"),
    ("Authorization: Bearer {}", "abcdef" + "123456", "bearer-token"),
    ('headers = {{"Authorization": "Bearer {}"}}', made(URL64, 40), "bearer-token"),
    ("curl -H 'Authorization: token {}' x", made(HEX, 40), "bearer-token"),
    ("authorization: Basic {}", BASIC, "basic-auth"),
    ("sent Basic {} again", BASIC, "basic-auth"),
    ("got Bearer {} from the cache", made(URL64, 40), "bearer-token"),
    ("Cookie: session={}; theme=dark", "abc123" + "def456", "cookie"),
    ("Set-Cookie: sid={}; Path=/; HttpOnly", made(URL64, 32), "cookie"),
    ("postgres://bob:{}@db.example.com:5432/app", "pw", "connection-string"),
    ("postgresql+psycopg://bob:{}@db/app", "hunt" + "er2", "connection-string"),
    ("DATABASE_URL=mysql://bob:{}@db/app", "sword" + "fish", "connection-string"),
    ("mongodb+srv://bob:{}@c.example.net/?w=majority", "p%40ss", "connection-string"),
    ("redis://:{}@cache:6379/0", "s3c" + "ret", "connection-string"),
    ("amqps://bob:{}@mq/vhost", "hunt" + "er2", "connection-string"),
    ("postgres://bob:{}@db/app", "p@ss/w#rd", "connection-string"),
    ("https://bob:{}@example.com/x.git", "hunt" + "er2", "url-password"),
    ("git clone https://oauth2:{}@example.com/x", made(ALNUM, 20), "url-password"),
    ("https://{}@o1.ingest.sentry.io/42", made(HEX, 32), "sentry-dsn"),
    ("https://{}@example.com/x.git", made(ALNUM, 40), "url-token"),
    ("https://s.blob.core.example/c?se=1&sig={}", made(ALNUM, 43) + "%3D", "azure-sas"),
    ("it printed {} and stopped", made(ALNUM, 40, seed=3), "high-entropy"),
    ("got {}", made(HEX, 32) + "-" + made(HEX, 8) + "-" + made(HEX, 8), "high-entropy"),
    ("{}", made(URL64, 43, seed=3), "high-entropy"),
    ('{{"kty": "RSA", "n": "abc", "d": "{}"}}', made(ALNUM, 86), "private-key"),
]


# The same for secrets that a format, a protocol or a tool announces.
CODED = base64.b64encode(b"bob:hunt" + b"er2").decode()
MIXED = "pG2EDU" + "WWh1wU"
PLACES: list[tuple[str, str]] = [
    ('"db_password": {{"sensitive": true, "type": "string", "value": "{}"}}', PASSWORD),
    ("Authorization: Splunk {}", "0dd1cbb4-45fe-4f5a-9a5b-7c1d2e3f4a5b"),
    ("https://d1.example.net/a.jpg?Expires=1&Signature={}&Key-Pair-Id=K", made(URL64, 43)),
    ('"github-oauth": {{"github.com": "{}"}}', LONG),
    ("CREATE LOGIN bob WITH PASSWORD = N'{}';", PASSWORD),
    ("INSERT INTO users (name, password) VALUES ('bob', '{}');", "hunt" + "er2"),
    ("username,password,role\nbob,{},admin\n", "hunt" + "er2"),
    ("| user | password |\n| --- | --- |\n| bob | {} |\n", "hunt" + "er2"),
    ("USER bob\r\n331 Password required\r\nPASS {}\r\n", "hunt" + "er2"),
    ("a1 LOGIN bob {}", "hunt" + "er2"),
    ("AUTH PLAIN {}", CODED),
    ("334 UGFzc3dvcmQ6\n{}", CODED),
    ('expect "assword:"\nsend "{}\\r"', "hunt" + "er2"),
    ("ConvertTo-SecureString '{}' -AsPlainText -Force", "hunt" + "er2"),
    ("%7B%22password%22%3A%22{}%22%7D", "hunt" + "er2"),
    ("{{&quot;password&quot;:&quot;{}&quot;}}", "hunt" + "er2"),
    ("{{\\u0022password\\u0022:\\u0022{}\\u0022}}", "hunt" + "er2"),
    ("db.password\\={}", "hunt" + "er2"),
    ("local password = [[{}]]", "hunt" + "er2"),
    ('accounts: ["{}"]', "0x" + made(HEX, 64)),
    ("Keypair.fromSecretKey(Uint8Array.from([{}]))", ",".join(str(n % 256) for n in range(64))),
    ("BUNDLE_ENTERPRISE__CONTRIBSYS__COM={}", "deadbe12:cafeba34"),
    ("password={}\n", "odqOdSOd" + "MyNjOg"),
    ("password: !!str {}\n", "hunt" + "er2"),
    ('"password": ["{}"]', "hunt" + "er2"),
    ("snmp-server community {} RO", "hunt" + "er2"),
    ("jwt.sign(payload, '{}')", "hunt" + "er2"),
    ('<setting name="Password"><value>{}</value></setting>', "hunt" + "er2"),
    ("schtasks /create /ru bob /rp {}", "hunt" + "er2"),
    ("auth: {{user: 'x', pass: '{}'}}", "odqOdSOd" + "MyNjOg"),
    ('command: ["redis-server", "--requirepass", "{}"]', "hunt" + "er2"),
    ('DriverManager.getConnection(url, "app", "{}")', MIXED),
    ("new PDO('mysql:host=db', 'app', '{}')", MIXED),
    ('Credentials.basic("bob", "{}")', MIXED),
    ('redis.auth("{}")', MIXED),
    ('hmac.new(b"{}", body, sha256)', MIXED),
    ("crypto.createHmac('sha256', '{}')", MIXED),
    ('base64.b64encode(b"bob:{}")', MIXED),
    ('let password = String::from("{}");', MIXED),
    ("await page.type('input[name=password]', '{}')", MIXED),
    ('var dbPassword string = "{}"', MIXED),
    ("hydra -l bob -p {} ssh://host", MIXED),
    ("cypher-shell -u neo4j -p {}", MIXED),
    ("sudo -S apt update <<< '{}'", MIXED),
    ("echo $'{}\\n' | passwd --stdin bob", MIXED),
    ("az keyvault secret set --name db --value {}", MIXED),
    ('dotnet user-secrets set "Db:Password" "{}"', MIXED),
    ("poetry config http-basic.acme bob {}", MIXED),
    ("wpa_passphrase homenet {}", MIXED),
    ("stats auth admin:{}", MIXED),
    ("crypto isakmp key {} address 192.0.2.4", MIXED),
    ("db2 connect to shop user bob using {}", MIXED),
    ("snmpget -v2c -c {} host sysDescr.0", MIXED),
    ("--script-args smbuser=bob,smbpass={} host", MIXED),
    ('<wsse:Password Type="x">{}</wsse:Password>', MIXED),
    ("<pass>{}</pass>", MIXED),
    ("[password]{}[/password]", MIXED),
    ('creds = ("bob", "{}")', MIXED),
    ("login with admin / {}", MIXED),
    ("my password's {}", MIXED),
    ("password reset to: {}", MIXED),
    ("DB pass = {}", MIXED),
    ("mount -o username=bob,password={}", "K7dwQ2vLm9." + "xTz4Rq"),
    ("curl -H 'Authorization:{}' https://example.com", "ta5gIC" + "G3"),
    ('"statuspageToken": "{}"', made(HEX, 64)),
    ("heroku: {}", "0dd1cbb4-45fe-4f5a-9a5b-7c1d2e3f4a5b"),
    ('adobe = "{}"', made(HEX, 32)),
    ("snyk => '{}'", "7f90eecf-d45b-4fa8-b29b-1bcd11e14d3c"),
]


@pytest.mark.parametrize(("text", "secret"), PLACES)
def test_what_a_format_or_a_tool_announces_is_replaced(text: str, secret: str) -> None:
    clean = redact(text.format(secret))
    assert secret not in clean
    before, after = text.format("\0").split("\0")
    assert clean.startswith(before)
    assert clean.endswith(after)


@pytest.mark.parametrize("width", [64, 76, 100, 120])
@pytest.mark.parametrize("between", ["\n", "\n    ", "\\n", '"\n    "', "' +\n  '", "\n> "])
def test_a_token_wrapped_over_lines_is_replaced_whole(width: int, between: str) -> None:
    for token in (jwt() + made(URL64, 300), KNOWN["atlassian"][1], KNOWN["openai project"][1]):
        lines = [token[at : at + width] for at in range(0, len(token), width)]
        clean = redact(f"got it:\n{between.join(lines)}\nand went on\n")
        assert not any(line in clean for line in lines)
        assert clean.startswith("got it:\n[redacted:")
        assert clean.endswith("\nand went on\n")


@pytest.mark.parametrize(("text", "secret", "kind"), ANNOUNCED)
def test_what_a_name_a_header_or_a_url_announces_is_replaced(
    text: str, secret: str, kind: str
) -> None:
    assert redact(text.format(secret)) == text.format(f"[redacted:{kind}]")


BODY = "\n".join(made(BASE64, 64, seed=line) for line in range(8)) + "\n" + made(BASE64, 20) + "=="
TYPES = ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ")


def block(kind: str, body: str = BODY) -> str:
    return f"-----BEGIN {kind}PRIVATE" + f" KEY-----\n{body}\n-----END {kind}PRIVATE" + " KEY-----"


@pytest.mark.parametrize("kind", TYPES)
def test_a_private_key_block_is_replaced_whole(kind: str) -> None:
    assert redact(f"key:\n{block(kind)}\ndone") == "key:\n[redacted:private-key]\ndone"


def test_a_private_key_is_found_however_it_is_quoted() -> None:
    pgp = block("PGP ").replace("KEY-----", "KEY BLOCK-----")
    headed = block(
        "RSA ", f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,{made(HEX, 32)}\n\n{BODY}"
    )
    numbered = "\n".join(f"  {n}\u2192{line}" for n, line in enumerate(block("").split("\n"), 1))
    indented = block("EC ").replace("\n", "\n    ")
    quoted = '"' + block("").replace("\n", '\\n"\n"') + '"'
    putty = f"Public-Lines: 1\nAAAA\nPrivate-Lines: 9\n{BODY}\nPrivate-MAC: x"
    as_json = json.dumps({"private_key": block("")})
    for text in (pgp, headed, numbered, indented, quoted, putty, as_json):
        clean = redact(text)
        assert "[redacted:private-key]" in clean
        assert not any(line in clean for line in BODY.split("\n"))
        assert "END" not in clean


def test_a_private_key_that_was_cut_off_is_replaced_as_far_as_it_goes() -> None:
    whole = block("RSA ")
    assert redact("x " + whole[:300]) == "x [redacted:private-key]"
    assert redact(whole[:300] + "\nand the log goes on") == (
        "[redacted:private-key]\nand the log goes on"
    )
    assert redact(whole[300:] + "\ndone") == "[redacted:private-key]\ndone"
    assert redact(whole[300:] + "\n" + whole) == "[redacted:private-key]\n[redacted:private-key]"


UUID, SHA1, SHA256 = "0dd1cbb4-45fe-4f5a-9a5b-7c1d2e3f4a5b", made(HEX, 40), made(HEX, 64)
HARMLESS = [
    "the build failed; sentry, trace 4bf92f3577b34da6a3ce929d0e0e4736",
    "discord_guild_id = '890190077345295565'",
    "heroku_app_id: 0dd1cbb4-45fe-4f5a-9a5b-7c1d2e3f4a5b",
    "docker run -u app -p 8080:80 web",
    "Authorization: OAuth2 flow",
    "pass = 12 of 14",
    "connection.connect('db1.example.com', 'inventory')",
    "mkdir -p src/v2beta1",
    "the password's length of 12 matters",
    f"commit {SHA1}",
    f"Merge {SHA1[:12]} into {SHA1}",
    f"sha256:{SHA256}",
    f"image: registry.example.com/app@sha256:{SHA256}",
    f"{made(HEX, 32)}  archive.tar.gz",
    f'"session_id": "{UUID}"',
    f"request {UUID} failed",
    f"run-{UUID}-step-2",
    f"![logo](data:image/png;base64,iVBORw0KGgo{made(BASE64, 400)}==)",
    f"src=data:image/gif;base64,{made(BASE64, 80)}",
    f'"integrity": "sha512-{made(BASE64, 86)}=="',
    f"golang.org/x/net v0.17.0 h1:{made(BASE64, 43)}=",
    f'checksum = "{SHA256}"',
    f"SHA256:{made(BASE64, 43)} bob@host (ED25519)",
    f'"CodeSha256": "{made(BASE64, 43)}="',
    f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{made(BASE64, 43)} bob@host",
    "-----BEGIN CERTIFICATE-----\n" + BODY + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + BODY + "\n-----END PUBLIC KEY-----",
    'if "-----BEGIN RSA PRIVATE' + ' KEY-----" in text:\n    return parse(text)',
    "-----BEGIN PRIVATE" + " KEY-----\n...\n-----END PRIVATE" + " KEY-----",
    "id 01ARZ3NDEKTSV4RRFFQ69G5FAV and V1StGXR8_Z5jdHi6B-myT",
    "toolu_01A09q90qw90lq917835lq9 msg_01XFDUDYJgAACzvnptvVoYEL",
    "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
    "/srv/main/src/ralph/text/redact.py:120",
    "node_modules/@babel/plugin-transform-modules-commonjs/lib/index.js",
    "C:\\Users\\bob\\AppData\\Local\\Programs\\Python\\Python311\\python.exe",
    "test_a_torn_last_line_is_reported_and_stepped_over_2",
    "AbstractSingletonProxyFactoryBeanHTTP2ConnectionPoolIPv6Support",
    "getUserByEmailAndPasswordResetTokenExpiryDateV2",
    "TestIntegration_AgentResurrectionWorkflow2_WithSQLiteAndHTTP2",
    "_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE",
    "https://example.com/docs/a/very/long/path/to/Some-Page_2024?page=2#section-3",
    f"https://docs.example.com/document/d/{made(URL64, 44)}/edit",
    "git@github.com:owner/repo.git ssh://git@github.com/owner/repo",
    "http://localhost:8080/path@2 redis://localhost:6379/0 http://[::1]:80/",
    '"resolved": "https://registry.example.org/left-pad/-/left-pad-1.3.0.tgz"',
    "numpy==2.1.3 pytest>=8.0,<9 v20.11.1-alpine3.19",
    "!function(e,t){var n=t.createElement('a'),r=e+1/2-n*3;return r?n:e}(window,document);",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    "=?utf-8?b?44KB44Gn44GZ44CC5a6f6Zqb44Gr44Gv44CMV2VubiBpc3QgZGFz?=",
    "password = None",
    "password=None, token=None",
    "password: str",
    "password: str | None = None",
    "token: Token",
    "password: string;",
    "secret: true",
    "password: required",
    "password: ${DB_PASSWORD}",
    "password: $DB_PASSWORD",
    'password = "${DB_PASSWORD}"',
    "PASSWORD=$(pass show db)",
    "PASSWORD=`pass show db`",
    "token: ${{ secrets.DEPLOY_TOKEN }}",
    "token: {{ vault_token }}",
    "api_key = os.environ['API_KEY']",
    'os.environ["API_KEY"]',
    'os.getenv("API_KEY", "")',
    "apiKey: process.env.API_KEY,",
    "password = settings.DATABASE_PASSWORD",
    "password = getpass.getpass('Password: ')",
    "password=password, token=token",
    "connect(user=user1, password=password1)",
    "self.password = password",
    "password = input2(prompt)",
    "token = tokens[0]",
    "token, value = get_token(value)",
    "getPassword() setPassword(password)",
    "x.password.length < 8",
    "api_key: your-api-key-here",
    "api_key: put-the-key-here",
    'API_KEY="<your key>"',
    "--token <token> --password PASSWORD --secret [SECRET]",
    "use the --password option or the --token flag",
    "API_KEY=xxxxxxxxxxxxxxxx",
    "password: ********",
    "PASSWORD=changeme",
    'password = ""',
    '"password": "Enter your password"',
    '"password": "Password"',
    'password = "must be at least 12 characters"',
    'password: "must contain uppercase letter"',
    '"password": "The password is wrong"',
    '"password": "Enter your password here"',
    '"password": "minimum 6 characters"',
    '"password": "user supplied password"',
    '"password": "required string min 6"',
    '"password": "text not null unique"',
    '"password": "at least one digit and one letter"',
    '"password": "Das Passwort muss mindestens acht Zeichen haben"',
    '"forgot_password": "Forgot your password?"',
    '"forgot_password": "Passwort vergessen?"',
    '"passphrase": "enter passphrase for key"',
    '"passphrase": "Passphrase of the private key"',
    '{"password": {"type": "string"}}',
    '"password": "[redacted:password]"',
    "postgres://user:${PGPASSWORD}@host/db",
    "postgres://user:<password>@host/db",
    "https://user:{token}@host/x",
    "Authorization: Bearer <token>",
    "Authorization: Bearer ${TOKEN}",
    'f"Bearer {token}"',
    "bearer tokens are checked, basic authentication is not",
    "Set-Cookie: theme=dark; Path=/home; SameSite=Strict; Max-Age=3600",
    "token_count = 45000",
    "max_tokens=4096 input_tokens: 12345",
    '"total_tokens": 123456789',
    "next_token = 'eyJ2IjoiMSIsInMiOjEsImMiOiJhYmMifQ'",
    "eos_token = '<|endoftext|>'",
    "def test_password_reset(self):",
    "I can not login and password reset does not work",
    "the login bob uses has a password policy and a token limit",
    "the password is wrong",
    "The token was refused, the secret is out, the key is under the mat.",
    "password is base64 encoded, then sha256 hashed",
    "12 passed, 3 failed; pass: 12, fail: 3",
    "--- PASS: TestAgentTreeNode_DeepNesting2 (0.00s)",
    "pass `check_0d=True` to bypass: 2nd",
    "bypass=abc12345 compass: north42",
    "PWD=/srv/main OLDPWD=/srv",
    "primary_key=True, foreign_key='user.id2'",
    "cache_key = 'user:42:profile:v2'",
    "public_key = '" + made(BASE64, 44) + "'",
    "sort(key=lambda x: x[1])",
    "KeyError: 'user_id42'",
    "arn:aws:secretsmanager:us-west-2:123456789012:secret:MySecret-a1b2c3",
    "curl -u $USER:$TOKEN https://example.com; docker run -u 1000:1000 x",
    "risk-assessment-framework-2024 task-scheduler-implementation2",
    "name,password,token\nthe user,reset link,limit\n",
    "| option | password |\n| --- | --- |\n| type | string |",
    "  'pwd',\n  'quad2d',\n  'quit',\n",
    "call(\n    token=token,\n    device=args.device,\n)",
    "as the user\nyou pass `-Dpam=no` to it",
    "INSERT INTO texts (id, password) VALUES (1, 'password');",
    "'password' => ['required', 'string', 'min:8'],",
    "if true, send 'mode reader' after the password command",
    "expect(password).toBe(sent)",
    "let token = [[0.1, 0.2], [0.3, 0.4]]",
    '"password": {"type": "string", "value": "required"}',
    "the authorization: token limits and key sizes are documented",
    "task-sk-chasing-dot-spinner2 and sk-learn-model-selection",
    f"{jwt()[:20]} is how it begins\nand the next line follows",
    "Czechoslovakia SLOVAKIA",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_text_that_grows_when_lower_cased_keeps_its_places() -> None:
    assert redact("İİİ password = 'hunt" + "er2' İ") == "İİİ password = '[redacted:password]' İ"


def test_the_surest_kind_names_a_secret_that_several_rules_find() -> None:
    kind, secret = KNOWN["github ghp"]
    assert redact(f"Authorization: Bearer {secret}") == f"Authorization: Bearer [redacted:{kind}]"
    assert redact(f'password = "{secret}"') == f'password = "[redacted:{kind}]"'


def test_a_tree_is_redacted_by_its_keys_and_in_its_strings() -> None:
    secret = KNOWN["stripe live"][1]
    tree = {
        "password": "sword" + "fish",
        "apiKey": LONG,
        "note": f"uses {secret}",
        "deep": [{"token": "abc123" + "def456"}, ("x", secret)],
        "max_tokens": 4096,
        "token_type": "bearer",
        "next_token": LONG,
        "ok": None,
    }
    assert redact_tree(tree) == {
        "password": "[redacted:password]",
        "apiKey": "[redacted:api-key]",
        "note": "uses [redacted:stripe-key]",
        "deep": [{"token": "[redacted:token]"}, ("x", "[redacted:stripe-key]")],
        "max_tokens": 4096,
        "token_type": "bearer",
        "next_token": LONG,
        "ok": None,
    }
    assert redact_tree(redact_tree(tree)) == redact_tree(tree)


pieces = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [text for text, _, _ in ANNOUNCED]
        + [secret for _, secret in KNOWN.values()]
        + HARMLESS
        + [PASSWORD, LONG, block(""), "[redacted:", "[redacted:token]", "password", "token=", ": "]
        + ["'", '"', "`", "\\", "\\n", "\n", "=", "--", "://", "@", "Bearer ", "Cookie: ", "<", ">"]
    ),
)
mixtures = st.lists(pieces, max_size=10).map("".join)


@given(st.one_of(st.text(), mixtures))
@example("password=\u0130" * 3)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | mixtures,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["password", "apiKey", "x"]) | st.text(max_size=5), inner)
    ),
    max_leaves=8,
)


@given(json_values)
def test_a_tree_keeps_its_form_and_is_clean_after_one_pass(value: object) -> None:
    once = redact_tree(value)
    assert redact_tree(once) == once
    assert type(once) is type(value)


# Shapes with a left edge need one: "disk-" must not begin a key.
ends = st.sampled_from(["", " ", "\n", '"', "'", "(", ",", "=", ":", "\\n", "\x1b[0m", "密"])
secrets_known = st.sampled_from([secret for _, secret in KNOWN.values()])


@given(mixtures, ends, secrets_known, ends, mixtures)
def test_a_planted_secret_never_survives_whatever_surrounds_it(
    before: str, left: str, secret: str, right: str, after: str
) -> None:
    assume(secret not in before + after)
    edge = left or ("" if not before else " ")
    assert secret not in redact(before + edge + secret + right + after)


words = st.sampled_from(
    "the loop reads 42 lines, then (docs/x.md) - ok; x = f(y) # why? “so” naïve 日本".split()
)
prose = st.lists(words, max_size=20).map(" ".join)


@given(prose, st.sampled_from(list(KNOWN.values())), prose)
def test_the_text_around_a_secret_is_unchanged(
    before: str, known: tuple[str, str], after: str
) -> None:
    kind, secret = known
    assert redact(f"{before} {secret} {after}") == f"{before} [redacted:{kind}] {after}"


@example("", "00000%s?", "")
@given(prose, st.text(ALNUM + "!@#%^*+?~", min_size=8, max_size=40), prose)
def test_a_quoted_password_is_replaced_whole_and_alone(before: str, value: str, after: str) -> None:
    clean = redact(f'{before}\n"password": "{value}7a!",\n{after}')
    assert re.fullmatch(r'"password": "\[redacted:[a-z-]+\]",', clean.split("\n")[1])
    assert (clean.split("\n")[0], clean.split("\n")[2]) == (before, after)


HOSTILE = [
    *"aA0=-\"'\\ \n/@_.",
    *("eyJ", "sk-", "ghp_", "glpat-.", "SG.aaaaaaaaaaaaaaaaaaaa.", "$6$", "a.", "aB3", "0123abcd-"),
    *(
        "password",
        "password=",
        'password="',
        "password='\\\"",
        "password: ",
        "--password ",
        "token,",
    ),
    *("-----BEGIN PRIVATE" + " KEY-----", "-----END PRIVATE" + " KEY-----", "A" * 64 + "\n"),
    *(
        "token\n",
        "password,x\n",
        "x|token|\n",
        "insert into a(password) values (",
        "%22password%22",
        "[[",
    ),
    *("eyJ" + "a" * 61 + "\n", "ghp_" + "a" * 70 + "\n", "accounts: ['", "send 'assword' "),
    *("://", "postgres://u:", "://a:b@", "authorization: ", "bearer ", "cookie: ", "cookie: a=b;"),
    *(
        "curl -u a:b ",
        "curl -u a:",
        "mysql -p ",
        "-p x ",
        "login a password ",
        "\"'",
        '\\"',
        "[redacted:",
        "password=hunter2 ",
        "\u0130",
    ),
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_text_made_to_be_slow_takes_no_longer_than_its_length(unit: str) -> None:
    # Quadratic time would be minutes.
    assert_linear(redact, lambda size: (unit * (size // len(unit) + 1))[:size], 30_000)


@pytest.mark.parametrize("unit", ["curl -u a:", "mysql -p ", "-p x ", "secret_key: "])
def test_text_full_of_flags_takes_a_share_of_a_second(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    start = time.process_time()
    redact(text)
    assert time.process_time() - start < 1.0  # it was twice that


def test_a_password_is_found_by_the_tool_of_its_own_command() -> None:
    value = "hunt" + "er2"
    far = "mysql -u root " + "-v " * 200
    assert redact(f"docker ps; sshpass -p {value} ssh x") == (
        "docker ps; sshpass -p [redacted:password] ssh x"
    )
    assert redact("sshpass x; mkdir -p some/path2") == "sshpass x; mkdir -p some/path2"
    assert redact(f"{far}-p{value}") == f"{far}-p{value}"
    assert redact(f"mysql -u root -p {value}") == f"mysql -u root -p {value}"


def test_importing_compiles_no_pattern() -> None:
    code = (
        "from ralph.text import redact, secrets\n"
        "assert secrets.compiled.cache_info().currsize == 0\n"
        "assert redact._tables.cache_info().currsize == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
