/* The lines between a session and its engine, without a framework: requests are paired with their answers, prompts
 * with their results, and fields that the schema of the protocol does not name are found.
 *
 * A record is [number, time, direction, bytes, line]; the direction is "in" or "out", as the engine sees it, or "err"
 * for its stderr. src/parley/inspector does the same in Python.
 */

const OPPOSITE = { in: "out", out: "in" };

export class WireTimeline {
  constructor() {
    this.rows = [];
    this.last = 0;
    this.until = 0; /* the time of the last line */
    this._open = new Map(); /* rows that wait for an answer, by who has to answer and the id */
  }

  add(records) {
    for (const [number, time, direction, bytes, line] of records) {
      if (number <= this.last) continue;
      this.last = number;
      const row = { key: number, number, time, direction, bytes, line, ...describe(line, direction), waitsFor: null, latencyMs: null };
      this.rows.push(row);
      this.until = time;
      this._pair(row);
    }
  }

  /* The requests without an answer, oldest first. */
  get open() {
    return [...new Set(this._open.values())];
  }

  _pair(row) {
    const { line, direction } = row;
    if (row.type === "control_request") this._wait(row, `${OPPOSITE[direction]} ${line.request_id}`);
    else if (row.type === "control_response") this._answer(row, `${direction} ${line.response?.request_id}`);
    else if (row.type === "control_cancel_request") this._answer(row, `${OPPOSITE[direction]} ${line.request_id}`);
    else if (row.type === "jsonrpc" && line.id !== undefined) {
      if (line.method === undefined) this._answer(row, `${direction} ${line.id}`);
      else this._wait(row, `${OPPOSITE[direction]} ${line.id}`);
    } else if (row.type === "user" && direction === "in") this._wait(row, line.uuid ? `prompt ${line.uuid}` : `prompt #${row.number}`);
    else if (row.type === "result" && direction === "out") this._answerPrompts(row);
  }

  /* A result names its prompts. Without names, it answers all that are not still queued. */
  _answerPrompts(row) {
    const waiting = [...this._open.keys()].filter((key) => key.startsWith("prompt "));
    const named = new Set(list(row.line.user_message_uuids).map((uuid) => `prompt ${uuid}`));
    const queued = row.line.queued_turn_count > 0 ? row.line.queued_turn_count : 0;
    const answered = named.size ? waiting.filter((key) => named.has(key) || key.startsWith("prompt #")) : waiting.slice(0, Math.max(0, waiting.length - queued));
    for (const key of answered) this._answer(row, key);
  }

  _wait(row, key) {
    row.waitsFor = "an answer";
    this._open.set(key, row);
  }

  _answer(row, key) {
    const asked = this._open.get(key);
    if (!asked) return;
    this._open.delete(key);
    asked.waitsFor = null;
    asked.latencyMs = row.latencyMs = (row.time - asked.time) * 1000;
    asked.answer = row;
    row.request = asked;
  }
}

function list(value) {
  return Array.isArray(value) ? value : [];
}

/* The names by which a line is known: its type, and what it is about. */
export function describe(line, direction) {
  if (direction === "err") return { type: "stderr", detail: String(line) };
  if (direction && typeof line === "string") return { type: "not JSON", detail: line };
  const isObject = line !== null && typeof line === "object" && !Array.isArray(line);
  const type = !isObject ? "not an object" : typeof line.type === "string" ? line.type : "jsonrpc" in line ? "jsonrpc" : "without a type";
  const detail = !isObject ? "" : (line.request?.subtype ?? line.subtype ?? line.response?.subtype ?? line.event?.type ?? line.method ?? contentNames(line));
  return { type, detail: typeof detail === "string" ? detail : "" };
}

function contentNames(line) {
  const content = line.message?.content;
  return Array.isArray(content) ? [...new Set(content.map((block) => block?.type).filter((type) => typeof type === "string"))].join(", ") : "";
}

export function matches(row, { text, direction, type, unknownOnly }, schema) {
  if (direction && row.direction !== direction) return false;
  if (type && row.type !== type) return false;
  if (unknownOnly && !findUnknown(row, schema).length) return false;
  if (!text) return true;
  row.text ??= JSON.stringify(row.line).toLowerCase();
  return row.text.includes(text.toLowerCase());
}

/* The fields of a row that the schema does not name; found once. */
export function findUnknown(row, schema) {
  if (!schema) return [];
  row.unknown ??= schema.unknownFields(row.line, row.request?.line);
  return row.unknown;
}

const MOST_FIELDS = 20;

/* A JSON Schema of the lines, as `GET /schema.json` has it. */
export class Schema {
  constructor(document) {
    this._document = document;
    this._answers = new Map(); /* the schemas of answers by the subtype of the request */
    for (const shape of Object.values(document.$defs ?? {})) if (shape["x-answer"]) this._answers.set(shape.properties.subtype.enum[0], shape["x-answer"]);
  }

  /* The paths of fields without a name in the schema; ["type"] if the type of the line is unknown. `request` is the
   * line that this one answers. */
  unknownFields(line, request) {
    const found = [];
    this._check(line, this._document, "", found);
    const answer = line?.type === "control_response" ? this._answers.get(request?.request?.subtype) : null;
    if (answer) this._check(line.response?.response ?? null, answer, "response.response", found);
    return found.slice(0, MOST_FIELDS);
  }

  _resolve(schema) {
    let current = schema;
    for (let step = 0; current?.$ref && step < 10; step++)
      current = current.$ref.replace(/^#\//, "").split("/").reduce((at, name) => at?.[name], this._document);
    return current;
  }

  _check(value, schema, path, found) {
    const current = this._resolve(schema);
    if (!current || value === null || typeof value !== "object" || found.length > MOST_FIELDS) return;
    const choices = current.anyOf ?? current.oneOf;
    if (choices) {
      this._checkChoices(value, choices, path, found);
    } else if (Array.isArray(value)) {
      if (current.items) value.forEach((each, index) => this._check(each, current.items, `${path}[${index}]`, found));
    } else if (current.properties && !current.additionalProperties) {
      for (const [name, each] of Object.entries(value)) {
        const place = path ? `${path}.${name}` : name;
        if (!Object.hasOwn(current.properties, name)) found.push(place);
        else if (current.properties[name].not) {
          found.push(place); /* the tag of a kind that the schema does not have: its fields are unknown */
          return;
        } else this._check(each, current.properties[name], place, found);
      }
    }
  }

  /* The choice that fits best: its tags agree, and it leaves the fewest fields without a name. */
  _checkChoices(value, choices, path, found) {
    let best = null;
    for (const choice of choices) {
      const current = this._resolve(choice);
      if (!this._fits(value, current)) continue;
      const unknown = [];
      this._check(value, current, path, unknown);
      if (!best || unknown.length < best.length) best = unknown;
      if (!unknown.length) break;
    }
    if (best) found.push(...best);
    else found.push(path ? `${path}.type` : "type");
  }

  _fits(value, schema) {
    if (!schema) return false;
    if (schema.anyOf || schema.oneOf) return true;
    if (Array.isArray(value)) return schema.type === "array" || schema.type === undefined;
    if (schema.type !== undefined && schema.type !== "object") return false;
    return Object.entries(schema.properties ?? {}).every(([name, property]) => {
      if (property.not?.enum?.includes(value[name])) return false;
      const allowed = property.enum ?? (property.const === undefined ? null : [property.const]);
      return !allowed || !(name in value ? !allowed.includes(value[name]) : list(schema.required).includes(name));
    });
  }
}
