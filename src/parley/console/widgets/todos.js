/* A list of todos with their states. */

import { html } from "../ui.js";
import { Plain } from "./plain.js";

const STATES = { __proto__: null, completed: "done", in_progress: "in progress", pending: "to do" };

export function Todos({ todos }) {
  return html`<ul class="todos">
    ${todos.map((todo, index) => {
      const status = STATES[todo?.status] ? todo.status : "pending";
      const text = status === "in_progress" ? (todo.activeForm ?? todo.content) : todo?.content;
      return html`<li key=${index} data-status=${status}>
        <span class="todo-box" role="img" aria-label=${STATES[status]}></span><span><${Plain} text=${text} /></span>
      </li>`;
    })}
  </ul>`;
}
