() => {
    for (const button of document.querySelectorAll('.virtual [aria-expanded="false"]:not([aria-haspopup])')) button.click();
    for (const details of document.querySelectorAll(".virtual details")) details.open = true;
    return [...document.querySelectorAll(".virtual-row")].map((row) => row.dataset.key);
}
