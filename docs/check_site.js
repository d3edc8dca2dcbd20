// Return what is wrong with the page as it is shown: the widths, images, contrasts and targets.
phone => {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    faults.push(`${root.scrollWidth - root.clientWidth} px wider than the screen`);
  }
  for (const image of document.images) {
    if (!image.complete || !image.naturalWidth) faults.push(`image not loaded: ${image.src}`);
  }

  const visible = element =>
    element.checkVisibility({opacityProperty: true, visibilityProperty: true});

  // WCAG 2.2, 2.5.8: 24 x 24 px.
  const buttons = "header a, header label, header button, footer a, .md-content__button";
  for (const target of phone ? document.querySelectorAll(buttons) : []) {
    const box = target.getBoundingClientRect();
    if (visible(target) && box.width > 1 && Math.min(box.width, box.height) < 24) {
      const name = target.title || target.innerText || target.className;
      faults.push(`target of ${box.width.toFixed()} x ${box.height.toFixed()} px: ${name}`);
    }
  }

  // WCAG 2.2, 1.4.3: the contrast of texts, 3 if they are large, else 4.5.
  const pixel = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const colours = new Map();
  const rgba = text => {
    if (!colours.has(text)) {
      pixel.clearRect(0, 0, 1, 1);
      pixel.fillStyle = text;
      pixel.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data;
      colours.set(text, [r, g, b, a / 255]);
    }
    return colours.get(text);
  };
  const over = (top, below) => [
    ...[0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])), 1,
  ];
  const behind = element => {
    if (!element) return [255, 255, 255, 1];
    const own = rgba(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, behind(element.parentElement));
  };
  const luminance = colour => {
    const [r, g, b] = colour.map(c => {
      const part = c / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const weak = new Map();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !visible(element)) continue;
    const style = getComputedStyle(element);
    const below = behind(element), colour = over(rgba(style.color), below);
    const [light, dark] = [luminance(colour), luminance(below)].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize), bold = style.fontWeight >= 700;
    if (contrast < (size >= 24 || (bold && size >= 18.66) ? 3 : 4.5)) {
      weak.set(`${style.color}: contrast ${contrast.toFixed(2)}`, texts.currentNode.data.trim());
    }
  }
  for (const [colour, text] of weak) faults.push(`${colour}: ${text.slice(0, 40)}`);
  return faults;
}
