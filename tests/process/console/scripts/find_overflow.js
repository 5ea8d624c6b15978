() => {
    const wide = [];
    const isClipped = (element) => {
        for (let each = element.parentElement; each; each = each.parentElement)
            if (getComputedStyle(each).overflowX !== "visible") return each.getBoundingClientRect().right <= innerWidth + 1;
        return false;
    };
    for (const element of document.querySelectorAll("#app *")) {
        const { right, width } = element.getBoundingClientRect();
        if (width && right > innerWidth + 1 && !isClipped(element)) wide.push(`${element.localName}.${element.className}`);
    }
    if (document.documentElement.scrollWidth > innerWidth) wide.push("the page");
    return wide;
}
