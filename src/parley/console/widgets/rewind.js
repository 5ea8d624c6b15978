/* Rewind files to a message: first what would change, then the change itself. */

import { parseUnified } from "../diff.js";
import { visible } from "../text.js";
import { html, useConsole, useEffect, useState } from "../ui.js";
import { Dialog } from "./dialog.js";
import { Diff } from "./diff.js";

export function Rewind({ sessionId, uuid, onClose }) {
  const { api, toasts } = useConsole();
  const [files, setFiles] = useState(null);
  const [problem, setProblem] = useState(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    api
      .get(`/sessions/${encodeURIComponent(sessionId)}/rewind`, { uuid })
      .then((found) => setFiles(found.files), setProblem);
  }, []);
  const rewind = async () => {
    setBusy(true);
    try {
      const reply = await api.control(sessionId, { subtype: "rewind_files", user_message_id: uuid });
      if (reply?.canRewind === false) throw new Error(reply.error ?? "The files cannot be rewound.");
      toasts.show("The files are as they were before that message.");
      onClose();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Rewind files" isWide onClose=${onClose}>
    ${problem && html`<p class="form-error" role="alert">${visible(problem.message)}</p>`}
    ${!files && !problem && html`<p role="status">Looking at what would change…</p>`}
    ${files && !files.length && html`<p>No file has changed since that message.</p>`}
    ${
      files &&
      files.length > 0 &&
      html`<p>
          These ${files.length === 1 ? "file goes" : `${files.length} files go`} back to the state before that message.
          The conversation stays as it is.
        </p>
        <div class="rewind-files">${files.map((file) => html`<${FileDiff} key=${file.path} file=${file} />`)}</div>`
    }
    <footer>
      <button class="button" onClick=${onClose}>${files?.length ? "Cancel" : "Close"}</button>
      ${files?.length > 0 && html`<button class="button danger" disabled=${isBusy} onClick=${rewind}>Rewind ${files.length === 1 ? "1 file" : `${files.length} files`}</button>`}
    </footer>
  </${Dialog}>`;
}

function FileDiff({ file }) {
  const hunks = parseUnified(file.diff ?? "").flatMap((each) => each.hunks);
  const label = file.status ? `${file.path} (${file.status})` : file.path;
  return hunks.length ? html`<${Diff} path=${label} hunks=${hunks} />` : html`<p><code>${visible(label)}</code></p>`;
}
