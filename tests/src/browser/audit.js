// Finds accessibility problems of a page: a list of sentences, empty if there are none. Contrast is that of WCAG 2.2 (1.4.3): at least
// 4.5, of large text 3.
(() => {
  const found = [];
  const where = (element) => {
    const id = element.id ? '#' + element.id : '';
    const text = (element.textContent || '').trim().slice(0, 40);
    return element.tagName.toLowerCase() + id + '.' + (element.getAttribute('class') || '') + ' "' + text + '"';
  };
  const all = (selector) => [...document.querySelectorAll(selector)];
  const isShown = (element) => element.checkVisibility({ visibilityProperty: true });

  // Colours as the browser computed them, blended with what lies below.
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const known = new Map();
  const parse = (text) => {
    if (!known.has(text)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const luminance = ([r, g, b]) => {
    const linear = (part) => { part /= 255; return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('script, style, noscript, option') || !isShown(element)) continue;
    texts += 1;
    const style = getComputedStyle(element);
    const below = behind(element);
    const ink = over(parse(element.closest('svg') ? style.fill : style.color), below);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = contrast(ink, below);
    if (ratio < (isLarge ? 3 : 4.5)) found.push('contrast ' + ratio.toFixed(2) + ': ' + where(element));
  }
  if (texts < 50) found.push('only ' + texts + ' texts are shown');
  for (const header of all('thead th')) if (!header.textContent.trim()) found.push('empty header: ' + where(header));

  // Names, for those who do not see.
  const name = (element) => (element.getAttribute('aria-label') || element.labels?.[0]?.textContent
    || element.textContent || element.getAttribute('title') || '').trim();
  for (const control of all('button, input, select, a[href], summary, [tabindex], [role=button]')) {
    if (!name(control)) found.push('without a name: ' + where(control));
    if (control.tabIndex > 0) found.push('out of order for the Tab key: ' + where(control));
  }
  for (const picture of all('svg')) {
    const isSilent = picture.closest('[aria-hidden=true]');
    if (!isSilent && !(picture.getAttribute('role') === 'img' && picture.getAttribute('aria-label'))) {
      found.push('a picture without words: ' + where(picture.parentElement));
    }
  }
  for (const cell of all('th')) if (!cell.scope) found.push('a heading of nothing: ' + where(cell));

  // The order of the page.
  if (!document.documentElement.lang || !document.title) found.push('no language or title');
  for (const landmark of ['header', 'nav', 'main', 'footer']) {
    if (all(landmark).length !== 1) found.push('not one ' + landmark);
  }
  let level = 0;
  for (const heading of all('h1, h2, h3, h4')) {
    const now = Number(heading.tagName[1]);
    if (now > level + 1) found.push('a level is left out before ' + where(heading));
    level = now;
  }
  if (all('h1').length !== 1) found.push('not one h1');
  const ids = all('[id]').map((element) => element.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) found.push('twice: #' + id);
  for (const link of all('a[href^="#"]')) {
    const id = decodeURIComponent(link.hash.slice(1));
    if (!document.getElementById(id)) found.push('leads nowhere: ' + link.hash);
  }

  // Nothing is wider than the window but what scrolls by itself.
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 1) {
    const culprits = all('body *').filter((element) => isShown(element) && !element.closest('.scroll, nav')
      && element.getBoundingClientRect().right > document.documentElement.clientWidth + 1);
    found.push('the page is ' + wide + ' px too wide: ' + culprits.slice(0, 3).map(where).join('; '));
  }
  return found.slice(0, 20);
})()
