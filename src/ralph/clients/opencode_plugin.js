// ralph: made by `ralph hooks install --agent opencode`, removed by `ralph hooks uninstall`.
// It hands prompts, failed commands and finished answers to `ralph hook`, and adds what that says.
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { delimiter, isAbsolute, join, sep } from "node:path"

const COMMAND = ["ralph"]
const LONGEST = 50_000
const LEFT_OUT = new Set(["diff", "filediff", "diffs", "snapshot", "preview", "display"])

// By name only from outside the project: a folder must not bring a program of its own.
function program(directory) {
  const [name, ...words] = COMMAND
  const given = name === "ralph" ? (process.env.RALPH_COMMAND ?? name) : name
  if (isAbsolute(given)) return [given, ...words]
  const inside = (directory + sep).replace(/[\\/]+$/, sep)
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    const file = join(folder, process.platform === "win32" ? `${given}.exe` : given)
    if (isAbsolute(folder) && !file.startsWith(inside) && existsSync(file)) return [file, ...words]
  }
}

// A text longer than that says nothing more, and diffs are the files' own.
const shorter = (key, value) =>
  LEFT_OUT.has(key) ? undefined : typeof value === "string" ? value.slice(0, LONGEST) : value

export const Ralph = async ({ directory }) => {
  const command = program(directory)
  if (!command) return {}
  const begun = new Set()
  const children = new Set()
  const messages = new Map()
  const running = new Set()

  const hook = (event, session, fields) => {
    const words = [...command.slice(1), "hook", event, "--agent", "opencode"]
    const answer = new Promise((resolve) => {
      let said = ""
      const child = spawn(command[0], words, {
        cwd: directory,
        stdio: ["pipe", "pipe", "ignore"],
        timeout: 20_000,
        windowsHide: true,
      })
      child.stdout.on("data", (data) => (said += data))
      child.on("error", () => resolve(""))
      child.stdin.on("error", () => {})
      child.on("close", () => {
        try {
          resolve(JSON.parse(said).hookSpecificOutput.additionalContext)
        } catch {
          resolve("")
        }
      })
      child.stdin.end(JSON.stringify({ session_id: session, cwd: directory, ...fields }, shorter))
    })
    running.add(answer)
    answer.finally(() => running.delete(answer))
    return answer
  }

  const message = (session, id) => {
    if (!messages.has(session)) messages.set(session, new Map())
    const known = messages.get(session)
    if (!known.has(id)) known.set(id, { info: {}, parts: new Map() })
    return known.get(id)
  }

  const handOn = (session) => {
    const known = [...(messages.get(session) ?? [])].sort(([a], [b]) => (a < b ? -1 : 1))
    messages.delete(session)
    return known.map(([, one]) => ({ info: one.info, parts: [...one.parts.values()] }))
  }

  return {
    "chat.message": async ({ sessionID }, { message: { id }, parts }) => {
      if (children.has(sessionID)) return
      const typed = parts.filter((part) => part.type === "text" && !part.synthetic)
      const prompt = typed.map((part) => part.text).join("\n")
      const texts = []
      if (!begun.has(sessionID)) {
        begun.add(sessionID)
        texts.push(await hook("session-start", sessionID, { source: "startup" }))
      }
      texts.push(await hook("user-prompt-submit", sessionID, { prompt }))
      for (const [number, text] of texts.entries()) {
        if (!text || !typed.length) continue
        parts.push({
          ...typed[0],
          id: `${typed.at(-1).id}${number}`,
          messageID: id,
          text,
          synthetic: true,
        })
      }
    },
    "tool.execute.after": async ({ tool, sessionID, args }, output) => {
      const code = output.metadata?.exit
      if (tool !== "bash" || !code || typeof output.output !== "string") return
      const error = `Exit code ${code}\n${output.output}`
      const fields = { tool_name: "Bash", tool_input: args, error }
      const text = await hook("post-tool-use-failure", sessionID, fields)
      if (text) output.output += `\n\n${text}`
    },
    event: async ({ event: { type, properties } }) => {
      const session = properties?.sessionID ?? properties?.info?.id
      if (type === "session.created" && properties.info?.parentID) children.add(session)
      if (!session || children.has(session)) return
      if (type === "message.updated") {
        message(session, properties.info.id).info = properties.info
      } else if (type === "message.part.updated") {
        const { part } = properties
        message(session, part.messageID).parts.set(part.id, part)
      } else if (type === "session.idle") {
        const found = handOn(session)
        if (found.length) await hook("stop", session, { messages: found })
      }
    },
    dispose: async () => {
      await Promise.all(running)
    },
  }
}
