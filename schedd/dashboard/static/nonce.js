// Bokeh makes <style> elements for its charts. The page's security policy lets in those alone that carry its
// nonce, so every style element made by a script of ours gets it.
{
  const nonce = document.currentScript.nonce;
  const create = document.createElement.bind(document);
  document.createElement = (name, options) => {
    const element = create(name, options);
    if (name.toLowerCase() === "style") element.nonce = nonce;
    return element;
  };
}
