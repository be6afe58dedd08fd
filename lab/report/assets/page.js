// What a reader can do with the page beyond reading it: choose light or dark, sort
// and filter tables, take the data along. Without it everything is still there.
'use strict';
{
  const root = document.documentElement;
  root.classList.add('js');

  // A page opened from a file may have no storage.
  const remember = {
    get(key) { try { return localStorage.getItem(key); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(key, value); } catch { /* then not */ } },
  };

  // Light, dark, or as the system has it.
  const theme = document.getElementById('theme');
  const themes = ['auto', 'light', 'dark'];
  const show = (chosen) => {
    if (chosen === 'auto') delete root.dataset.theme;
    else root.dataset.theme = chosen;
    theme.textContent = { auto: 'As the system', light: 'Light', dark: 'Dark' }[chosen];
    theme.setAttribute('aria-label', 'Light or dark: ' + theme.textContent.toLowerCase());
    theme.dataset.chosen = chosen;
  };
  const kept = remember.get('trapline-theme');
  show(themes.includes(kept) ? kept : 'auto');
  theme.hidden = false;
  theme.addEventListener('click', () => {
    const next = themes[(themes.indexOf(theme.dataset.chosen) + 1) % themes.length];
    show(next);
    remember.set('trapline-theme', next);
  });

  // The figures as a file, made of what is in the page.
  const download = document.getElementById('download');
  if (download) download.hidden = false;
  download?.addEventListener('click', () => {
    const text = document.getElementById('data').textContent;
    const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
    download.href = url;
    setTimeout(() => { URL.revokeObjectURL(url); download.href = '#facts'; }, 1000);
  });

  // A part that is closed opens for whoever is led to it.
  const reveal = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    if (!target) return;
    for (let at = target; at; at = at.parentElement) {
      if (at.tagName === 'DETAILS') at.open = true;
    }
    target.scrollIntoView();
  };
  addEventListener('hashchange', reveal);
  if (location.hash) reveal();

  for (const table of document.querySelectorAll('table.comparison')) sortable(table);
  for (const controls of document.querySelectorAll('.controls')) filtering(controls);

  for (const graph of document.querySelectorAll('.flame')) zoomable(graph);

  // A frame that is chosen fills the width, its callers stay below it.
  function zoomable(graph) {
    const told = graph.nextElementSibling;
    const frames = [...graph.children].map((element) => ({
      element, x: +element.dataset.x, w: +element.dataset.w, d: +element.dataset.d,
    }));
    const all = frames[0];
    let zoomed = all;
    const within = (inner, outer) => inner.x >= outer.x - 1e-4 && inner.x + inner.w <= outer.x + outer.w + 1e-4;
    const zoom = (to) => {
      zoomed = to;
      for (const frame of frames) {
        const isPast = frame.d < to.d && within(to, frame);
        const isShown = isPast || (frame.d >= to.d && within(frame, to));
        const { style } = frame.element;
        frame.element.hidden = !isShown;
        frame.element.classList.toggle('past', isPast);
        style.left = (isPast ? 0 : 100 * (frame.x - to.x) / to.w) + '%';
        style.width = (isPast ? 100 : 100 * frame.w / to.w) + '%';
        frame.element.classList.toggle('narrow', !isPast && frame.w / to.w < 0.025);
      }
    };
    const focus = (frame) => {
      if (!frame) return;
      for (const { element } of frames) element.tabIndex = -1;
      frame.element.tabIndex = 0;
      frame.element.focus();
    };
    const of = (element) => frames.find((frame) => frame.element === element);
    const shown = () => frames.filter((frame) => !frame.element.hidden);
    const steps = {
      ArrowUp: (at) => shown().find((frame) => frame.d === at.d + 1 && within(frame, at)),
      ArrowDown: (at) => shown().find((frame) => frame.d === at.d - 1 && within(at, frame)),
      ArrowLeft: (at) => shown().filter((frame) => frame.d === at.d && frame.x < at.x).at(-1),
      ArrowRight: (at) => shown().find((frame) => frame.d === at.d && frame.x > at.x),
    };
    const tell = (event) => { told.textContent = of(event.target)?.element.title ?? ''; };
    const choose = (frame) => { if (frame) zoom(frame === zoomed ? all : frame); };
    all.element.tabIndex = 0;
    graph.addEventListener('click', (event) => { choose(of(event.target)); focus(of(event.target)); });
    graph.addEventListener('mouseover', tell);
    graph.addEventListener('focusin', tell);
    graph.addEventListener('keydown', (event) => {
      const at = of(event.target);
      if (!at) return;
      if (event.key in steps) focus(steps[event.key](at));
      else if (event.key === 'Enter' || event.key === ' ') choose(at);
      else if (event.key === 'Escape') { zoom(all); focus(all); }
      else return;
      event.preventDefault();
    });
  }

  // A click on a column's heading sorts by it, another turns it around, a third
  // brings back the order of the workloads.
  function sortable(table) {
    const groups = [...table.tBodies];
    const rows = groups.flatMap((group) => [...group.rows].filter((row) => !row.matches('.group')));
    const home = new Map(rows.map((row) => [row, row.parentElement]));
    const headings = [...table.querySelectorAll('[data-sort]')];
    for (const heading of headings) {
      const button = document.createElement('button');
      button.type = 'button';
      button.append(...heading.childNodes);
      if (heading.dataset.label) button.setAttribute('aria-label', 'Sort by ' + heading.dataset.label);
      heading.append(button);
      button.addEventListener('click', () => {
        const now = heading.getAttribute('aria-sort');
        const next = heading.dataset.sort === 'order' ? null
          : { descending: 'ascending', ascending: null }[now] ?? (now ? null : 'descending');
        for (const other of headings) other.removeAttribute('aria-sort');
        if (next) heading.setAttribute('aria-sort', next);
        arrange(heading.dataset.sort, next);
      });
    }
    function arrange(key, direction) {
      table.classList.toggle('sorted', !!direction);
      if (!direction) {
        for (const row of rows) home.get(row).append(row);
        return;
      }
      const selector = 'td.' + key[0] + '.c' + key.slice(1);
      const value = (row) => row.querySelector(selector)?.dataset.v;
      const sign = direction === 'ascending' ? 1 : -1;
      const sorted = rows.map((row) => [value(row), row]);
      // What has no figure stands last, whichever way.
      sorted.sort(([a], [b]) => (a === undefined) - (b === undefined) || sign * (a - b) || 0);
      groups[0].append(...sorted.map(([, row]) => row));
    }
  }

  function filtering(controls) {
    const table = document.getElementById(controls.dataset.for);
    const [search] = controls.getElementsByTagName('input');
    const [workload] = controls.getElementsByTagName('select');
    const boxes = [...controls.querySelectorAll('input[type=checkbox]')];
    const groups = [...table.tBodies];
    const rows = groups.flatMap((group) => [...group.rows]
      .filter((row) => !row.matches('.group'))
      .map((row) => [row, group.dataset.workload]));
    const about = (row) => row.cells[0].textContent + ' ' + row.cells[0].querySelector('[title]')?.title;
    const textOf = new Map(rows.map(([row]) => [row, about(row).toLowerCase()]));
    const told = controls.querySelector('output');
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      const left = new Set();
      for (const [row, of] of rows) {
        const text = textOf.get(row);
        const shown = (!workload.value || workload.value === of) && words.every((word) => text.includes(word));
        row.hidden = !shown;
        if (shown) { count += 1; left.add(of); }
      }
      for (const group of groups) group.querySelector('.group').hidden = !left.has(group.dataset.workload);
      told.textContent = count + ' of ' + rows.length + ' operations';
    };
    search.addEventListener('input', filter);
    workload.addEventListener('change', filter);
    for (const box of boxes) {
      box.addEventListener('change', () => {
        for (const cell of table.querySelectorAll('.c' + box.value)) cell.hidden = !box.checked;
      });
    }
    filter();
  }
}
