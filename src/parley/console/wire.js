/* The lines between a session and its engine, without a framework: requests are paired with their answers, prompts
 * with their results, and fields that the schema of the protocol does not name are found.
 *
 * A record is [number, time, direction, bytes, line]; the direction is "in" or "out", as the engine sees it.
 */

const OPPOSITE = { in: "out", out: "in" };

export class WireTimeline {
  constructor() {
    this.rows = [];
    this.last = 0;
    this._open = new Map(); /* rows that wait for an answer, by who has to answer and the id */
  }

  add(records) {
    for (const [number, time, direction, bytes, line] of records) {
      if (number <= this.last) continue;
      this.last = number;
      const row = { key: number, number, time, direction, bytes, line, ...describe(line), waitsFor: null, latencyMs: null };
      this.rows.push(row);
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
    else if (row.type === "user" && direction === "in" && line.uuid) this._wait(row, `prompt ${line.uuid}`);
    else if (row.type === "result") for (const uuid of list(line.user_message_uuids)) this._answer(row, `prompt ${uuid}`);
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
export function describe(line) {
  const isObject = line !== null && typeof line === "object" && !Array.isArray(line);
  const type = isObject && typeof line.type === "string" ? line.type : "not an object";
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
  row.unknown ??= schema.unknownFields(row.line);
  return row.unknown;
}

const MOST_FIELDS = 20;

/* A JSON Schema of the lines, as `GET /schema.json` has it. */
export class Schema {
  constructor(document) {
    this._document = document;
  }

  /* The paths of fields without a name in the schema; ["type"] if the type of the line is unknown. */
  unknownFields(line) {
    const found = [];
    this._check(line, this._document, "", found);
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
        if (Object.hasOwn(current.properties, name)) this._check(each, current.properties[name], place, found);
        else found.push(place);
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
      const allowed = property.enum ?? (property.const === undefined ? null : [property.const]);
      return !allowed || !(name in value ? !allowed.includes(value[name]) : list(schema.required).includes(name));
    });
  }
}
