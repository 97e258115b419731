// Tabs: arrow keys change the tab, and the panel follows.

export function setUpTabs(list, onChange = () => {}) {
  const tabs = [...list.querySelectorAll("[role=tab]")];
  const select = (tab) => {
    for (const one of tabs) {
      const chosen = one === tab;
      one.setAttribute("aria-selected", String(chosen));
      one.tabIndex = chosen ? 0 : -1;
      document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
    }
    onChange(tab);
  };
  list.addEventListener("click", (event) => tabs.includes(event.target) && select(event.target));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const tab = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    tab.focus();
    select(tab);
  });
  list.hidden = false;
  return { select };
}
