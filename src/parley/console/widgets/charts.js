/* Small charts as SVG, each with the same figures as a table for screen readers. */

import { html } from "../ui.js";

const WIDTH = 640;
const HEIGHT = 150;
const GAP = 0.25; /* of the width of a bar */
const FEWEST = 14; /* so that few bars are not wide */

/* `bars`: [{label, values: [number…], title}]; the values are stacked, `names` says what each of them is. */
export function BarChart({ bars, names, format, label }) {
  const highest = Math.max(...bars.map((bar) => bar.values.reduce((sum, value) => sum + value, 0)), 0) || 1;
  const step = WIDTH / Math.max(bars.length, FEWEST);
  const width = step * (1 - GAP);
  return html`<figure class="chart">
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${label}>
      ${bars.map((bar, index) => {
        let top = HEIGHT;
        return html`<g key=${index}>
          <title>${bar.title ?? `${bar.label}: ${bar.values.map(format).join(", ")}`}</title>
          <rect class="chart-hit" x=${index * step} y="0" width=${step} height=${HEIGHT} />
          ${bar.values.map((value, kind) => {
            const height = (value / highest) * (HEIGHT - 4);
            top -= height;
            return html`<rect key=${kind} data-color=${kind} x=${index * step + (step - width) / 2} y=${top} width=${width} height=${Math.max(height, value > 0 ? 1 : 0)} />`;
          })}
        </g>`;
      })}
    </svg>
    <div class="chart-axis muted small" aria-hidden="true"><span>${bars.length > FEWEST ? `${bars[0].label} to ${bars.at(-1).label}` : label}</span><span>up to ${format(highest)}</span></div>
    ${names.length > 1 && html`<ul class="context-legend chart-legend" aria-hidden="true">${names.map((name, kind) => html`<li key=${name}><span class="swatch" data-color=${kind}></span><span>${name}</span></li>`)}</ul>`}
    <table class="visually-hidden">
      <caption>${label}</caption>
      <thead><tr><th scope="col"></th>${names.map((name) => html`<th scope="col" key=${name}>${name}</th>`)}</tr></thead>
      <tbody>${bars.map((bar, index) => html`<tr key=${index}><th scope="row">${bar.label}</th>${bar.values.map((value, kind) => html`<td key=${kind}>${format(value)}</td>`)}</tr>`)}</tbody>
    </table>
  </figure>`;
}
