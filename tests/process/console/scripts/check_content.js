() => {
    const found = [];
    if (window.isHit) found.push("a script ran");
    const tags = new Set(["a", "article", "aside", "bdi", "blockquote", "br", "button", "circle", "code", "dd", "del", "details",
        "dialog", "div", "dl", "dt", "em", "fieldset", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "img",
        "input", "kbd", "label", "legend", "li", "main", "mark", "nav", "ol", "option", "p", "path", "pre", "rect", "section",
        "select", "span", "strong", "summary", "svg", "table", "tbody", "td", "textarea", "th", "thead", "time", "tr", "ul"]);
    const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/;
    const address = /^(https?:\/\/|mailto:|#\/|#main$|data:image\/(png|jpeg|gif|webp);base64,)/;
    for (const element of document.querySelectorAll("#app *")) {
        if (!tags.has(element.localName)) found.push(`element ${element.localName}`);
        for (const { name, value } of element.attributes) {
            if (name.startsWith("on")) found.push(`attribute ${name}`);
            if (["href", "src", "action", "formaction", "srcdoc", "data", "poster", "xlink:href"].includes(name) && !address.test(value))
                found.push(`${name}=${value}`);
            if (name !== "value" && hidden.test(value)) found.push(`hidden character in ${name}=${value}`);
        }
        for (const node of element.childNodes)
            if (node.nodeType === Node.TEXT_NODE && hidden.test(node.data) && element.localName !== "textarea") found.push(`hidden character in ${element.localName}.${element.className}: ${node.data}`);
        if (element.localName === "img" && !element.src.startsWith("data:image/")) found.push(`image ${element.src}`);
        if (element.localName === "a" && !element.getAttribute("href").startsWith("#") && !/noopener/.test(element.rel)) found.push("a link without noopener");
    }
    for (const control of document.querySelectorAll(".item .allow, .item .question, .content-frame button:not(.icon-button, .fold-button), .item form, .item input"))
        found.push(`control in content: ${control.outerHTML.slice(0, 100)}`);
    for (const style of document.querySelectorAll("#app [style]"))
        if (!style.matches(".virtual-body, textarea, .context-bar span, .timeline-track span")) found.push(`style ${style.outerHTML.slice(0, 100)}`);
    return [...new Set(found)];
}
