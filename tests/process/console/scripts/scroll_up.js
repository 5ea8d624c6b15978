/* Scroll up by less than what is drawn, and wait until the new rows are drawn. */
() =>
  new Promise((done) => {
    document.querySelector(".virtual").scrollBy(0, -3000);
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));
  })
