"""What the words of knowledge mean to each other: synonyms, opposites and rivals. Only data."""

from __future__ import annotations

from ralph.text.tokens import stem

# A line of words that people use for one another when they tell what went wrong or what they did.
_SYNONYMS = """
pin freeze constrain hold cap
remove drop delete strip discard erase unset eliminate rid prune
raise increase bump enlarge grow lift double
lower reduce decrease shrink shorten
upgrade update newer
use adopt switch employ utilise utilize choose chosen via
add insert append introduce include
create make build generate construct produce built made
start launch boot startup begin spawn initialise initialize init
stop halt abort terminate quit end
fail break crash die error failure broken fault exception throw
refuse reject deny forbid disallow block decline
lack miss absent gone
wrong incorrect bad
slow sluggish latency
concurrent parallel simultaneous parallelise
race racy
flaky intermittent sporadic sometimes occasional random randomly
duplicate twice repeat again redeliver
hang stuck wait
fetch load retrieve download
send deliver transmit emit publish
store save persist write kept written
check verify validate verification
change modify alter edit adjust
move relocate shift
split divide separate
join merge combine unify coalesce
function method func routine procedure
folder directory dir
argument parameter param
variable var
environment env
dependency dep
config configuration
repository repo
database db
password credential
login signin sign-in logon
permission right authorisation authorization
certificate cert
request call
response answer reply
column field
row record
list array collection
dictionary dict map hashmap
document docs
pull-request pr mr
worker job
pipeline ci workflow
memory heap ram
expire expiry ttl lifetime
timeout timed-out deadline
front-end frontend ui
clean cleanup tidy
lock mutex
iterate loop walk traverse
default fallback
explicit explicitly
mask redact hide scrub obfuscate
rollback revert undo restore downgrade
log logger
sort ordering sequence
transaction tx
batch chunk
index indices
hash digest
outside external
inside internal within
plain plaintext cleartext clear
empty blank
identifier id
wrap wrapper surround
collect gather accumulate
dialog modal popup banner
skip ignore bypass
await async asynchronous
notebook jupyter
lazy lazily
eager eagerly upfront
unique distinct
schedule cron nightly
deploy deployment rollout ship release
certificate tls ssl
token jwt
replica instance copy
queue backlog
limit quota threshold maximum max
minimum min
retry reattempt
backoff back-off
listener handler callback subscriber
proxy gateway
container pod
image picture
script command
bucket s3
page paginate
cursor keyset
endpoint route path url
test spec suite
mock fake stub
coverage covered
type annotation
null none nil undefined
integer int number
string str text
boolean bool
character char
encoding charset codec
locale language
timezone zone tz
date datetime timestamp
memory-leak leak
socket websocket ws
import require
circular cycle cyclic
parse parser
component widget
state status
event message
role policy
user account
customer client
admin administrator
host server machine node
network net
disk volume storage space
symlink link
binary executable
schema ddl
tag label
conflict clash collide
review approval
approach strategy
design architecture
flag toggle
contrast legible
accessible a11y
vulnerability cve
privacy gdpr pii
email e-mail mail
audit trail
metric monitoring
alert alarm
skew drift
spam junk
refresh renew
immediate instantly
malformed unparseable corrupt garbled
picture photo
aggregate bundle
bracket parenthesis parentheses
dlq dead-letter
acknowledge ack
logout log-out signout sign-out
separate own dedicated
cost price expense
wording phrasing
alternative option choice
mandatory obligatory
optional voluntary
quick fast rapid quickly
big large huge
small little tiny
fuzzy blurry
visible shown displayed
obtain acquire
close shut
finish complete done
convert transform transpile
copy clone duplicate-of
compare comparison
choose select pick
need demand
describe explain
forever ever endless infinite endlessly
crash segfault
process daemon
assert expect
fixture setup
snapshot golden
"""

# Words that point in opposite directions: one side's only, the other side's only, means another
# statement. A slash separates the sides, a comma the words of a side.
_OPPOSITES = """
before,prior / after,afterwards
enable,enabled,on,activate / disable,disabled,off,deactivate
allow,permit,allowed,accept / deny,forbid,denied,disallow,refuse,reject,block
include / exclude,omit
increase,raise,bump,enlarge,lengthen,double / decrease,lower,reduce,shorten,shrink,halve
upgrade,newer / downgrade,older
add,introduce,install,insert / remove,drop,delete,uninstall
pin,freeze,constrain / unpin,unfreeze,loosen,relax
sync,synchronous,synchronously,blocking / async,asynchronous,asynchronously,nonblocking
mutable / immutable
ascending,asc / descending,desc
lowercase / uppercase
required,mandatory / optional
eager,eagerly / lazy,lazily
serial,serially,sequential,sequentially / parallel,concurrently
encode,serialise,serialize / decode,deserialise,deserialize
encrypt / decrypt
strict / lax,none,loose
happy / failure,unhappy
split / join
bounded / unbounded
buffered / unbuffered
inline,inlined / extract,extracted
encrypted / unencrypted,plaintext
long,longer,lengthy / short,shorter,terse
"""

# Things of which one is used in place of another: knowledge about one is not about another.
_RIVALS = """
postgres,postgresql,psycopg2,pg mysql,mysqlclient,pymysql sqlite,sqlite3 oracle mssql mongodb,mongo
mariadb cassandra dynamodb cockroachdb duckdb clickhouse mongodb
redis memcached
kafka rabbitmq,amqp sqs nats pulsar kinesis pubsub
npm yarn pnpm bun
pip poetry conda pipenv uv pdm
maven,mvn gradle bazel
cargo
react vue angular svelte solid ember preact
next.js,nextjs,next nuxt remix gatsby astro sveltekit create-react-app,cra
django flask fastapi tornado starlette aiohttp rails laravel spring express nestjs koa fastify
requests httpx urllib3 axios
jest vitest mocha jasmine ava
pytest unittest nose
cypress playwright selenium puppeteer
webpack vite rollup esbuild parcel turbopack
eslint biome prettier black ruff flake8 pylint isort
sqlalchemy prisma typeorm sequelize hibernate activerecord knex drizzle
pandas polars dask
numpy protobuf torch,pytorch tensorflow jax
alembic flyway liquibase django rails prisma sequelize
linux,ubuntu,debian,alpine windows,win32 macos,darwin osx
ubuntu debian alpine centos fedora rhel
ios android
amd64,x86,x86_64,x64 arm64,arm,aarch64
aws,amazon gcp azure
s3 gcs minio
github-actions,github gitlab jenkins circleci bitbucket travis
chrome,chromium,chromedriver firefox,geckodriver safari edge
terraform pulumi cloudformation
kubernetes,k8s,kubectl nomad ecs
nginx apache haproxy traefik caddy envoy
elasticsearch opensearch solr
bcrypt argon2 scrypt pbkdf2
md5 sha1,sha-1 sha256,sha-256 sha512
utf-8,utf8 utf-16,utf16 latin-1,latin1,iso-8859-1 cp1252 ascii
json yaml,yml toml xml csv protobuf
rest graphql grpc,rpc,rpc-style soap
offset cursor keyset
webpush websocket,websockets sse polling long-polling
merge rebase squash
uuidv4 uuidv7 ulid bigint serial
tcp udp quic
celery sidekiq rq dramatiq bullmq
vault kms
rustls native-tls openssl
asyncio trio gevent
bash zsh powershell
junit testng
flex grid
ssh https
stripe paypal adyen
python java rust golang ruby php kotlin swift scala elixir
lodash underscore ramda
pydantic marshmallow attrs msgspec
zod yup joi ajv
moment,momentjs dayjs date-fns luxon
tailwind,tailwindcss bootstrap bulma material-ui,mui
redux zustand mobx recoil vuex pinia
log4j logback slf4j
winston pino bunyan
jackson gson moshi
okhttp retrofit
mockito easymock powermock
tokio async-std smol
actix,actix-web axum rocket warp
gin echo fiber chi
gorm sqlx ent
mybatis jooq hibernate
sentry rollbar datadog newrelic
prometheus graphite influxdb statsd
helm kustomize
ansible puppet chef
docker podman
eks ecs lambda fargate ec2
cloudflare fastly cloudfront akamai
auth0 okta keycloak cognito
oauth,oauth2 saml ldap kerberos
gunicorn uvicorn hypercorn uwsgi
puma unicorn passenger
pm2 systemd supervisor supervisord
node,nodejs,node.js deno
cpython pypy
sass,scss less stylus
swr react-query tanstack-query apollo urql
socket.io signalr
pillow imagemagick sharp
matplotlib plotly seaborn bokeh
sklearn,scikit-learn xgboost lightgbm
spark flink hadoop beam
airflow prefect dagster luigi
snowflake bigquery redshift databricks
parquet avro orc
gzip brotli zstd
rsa ecdsa ed25519
hs256 rs256 es256
ipv4 ipv6
cpu gpu
cuda rocm
stdout stderr
desktop mobile
int32 int64
float32 float64
gcc clang msvc
rspec minitest
phpunit pest
bigint,int8 integer,int4 smallint
varchar jsonb
hourly daily weekly monthly yearly
monday tuesday wednesday thursday friday saturday sunday
"""

# Words that say that something was done or told, not what.
_LIGHT = """
use add set keep run do make need get take put give let go want try fix fixed solve solved
problem issue bug cause caused happen happens because since due found find see seen show shows
now then new old only just even also still already instead place rather than always never once
one two three first second time way thing things case part other another every each all any some
correct change create fail work works working works step us people team code
gate review reviewer human approve approved accept accepted attempt feedback
"""


def _lines(table: str) -> list[list[str]]:
    return [line.split() for line in table.split("\n") if line.strip()]


def _meanings() -> dict[str, str]:
    """The stem of each synonym, and the stem of the first word of its first line."""
    found: dict[str, str] = {}
    for line in _lines(_SYNONYMS):
        for word in line:
            found.setdefault(stem(word), stem(line[0]))
    return found


MEANING = _meanings()
LIGHT = frozenset(MEANING.get(stem(w), stem(w)) for line in _lines(_LIGHT) for w in line)
OPPOSITES: tuple[tuple[frozenset[str], frozenset[str]], ...] = tuple(
    (
        frozenset(word for word in one.replace(",", " ").split()),
        frozenset(word for word in other.replace(",", " ").split()),
    )
    for one, _, other in (line.partition("/") for line in _OPPOSITES.split("\n") if line.strip())
)
# Each rival's name, and the fields in which it stands with the thing that it names there.
RIVALS: dict[str, list[tuple[int, str]]] = {}
for _field, _line in enumerate(_lines(_RIVALS)):
    for _thing in _line:
        _names = _thing.split(",")
        for _name in {*_names, *map(stem, _names)}:
            RIVALS.setdefault(_name, []).append((_field, _names[0]))
