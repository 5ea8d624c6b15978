/* Scroll down by less than what is drawn, and wait until the new rows are drawn. False at the end. */
() =>
  new Promise((done) => {
    const list = document.querySelector(".virtual");
    const before = list.scrollTop;
    list.scrollBy(0, 3000);
    const moved = list.scrollTop > before;
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(moved))));
  })
