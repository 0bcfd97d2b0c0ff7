// Draws window.PAGE: { board, prometheus, time: { from, to, step }, mode } on Grafana's grid.
import React from 'react';
import 'uplot/dist/uPlot.min.css';
import { createRoot } from 'react-dom/client';
import { ThemeContext, createTheme } from '@grafana/data';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { Panel } from './panels.jsx';

const WIDTH = 1440;
const COLUMN = WIDTH / 24;
const ROW = 30;
const GAP = 8;

class Guard extends React.Component {
  state = {};

  static getDerivedStateFromError(error) {
    return { error };
  }

  render() {
    const { error } = this.state;
    return error ? <div data-panel={this.props.id} data-state="crash" data-told={String(error)} /> : this.props.children;
  }
}

function Place({ panel, page }) {
  const { x, y, w, h } = panel.gridPos;
  const width = w * COLUMN - GAP;
  const height = h * (ROW + GAP) - GAP;
  const style = { position: 'absolute', left: x * COLUMN, top: y * (ROW + GAP), width, height };
  if (panel.type === 'row') {
    const inside = panel.collapsed ? ` (${panel.panels.length} panels)` : '';
    return <h4 className="row" style={style}>{`${panel.collapsed ? '\u25b8' : '\u25be'} ${panel.title}${inside}`}</h4>;
  }
  return (
    <div style={style}>
      <Guard id={panel.id}>
        <Panel panel={panel} page={page} width={width} height={height} />
      </Guard>
    </div>
  );
}

function Board({ page }) {
  const { board, chosen } = page;
  const bottom = Math.max(...board.panels.map(({ gridPos: { y, h } }) => y + h)) * (ROW + GAP);
  return (
    <div className="board">
      <header>
        <h2>{board.title}</h2>
        {Object.entries(chosen).map(([name, value]) => <span key={name}><b>{name}</b> {value}</span>)}
        <nav>{board.links.map((link) => <a key={link.title} href={link.url}>{link.title}</a>)}</nav>
      </header>
      <main style={{ position: 'relative', width: WIDTH, height: bottom }}>
        {board.panels.map((panel) => <Place key={panel.id} panel={panel} page={page} />)}
      </main>
    </div>
  );
}

const theme = createTheme({ colors: { mode: window.PAGE.mode } });
document.body.style.background = theme.colors.background.canvas;
document.body.style.color = theme.colors.text.primary;
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <Board page={{ ...window.PAGE, theme }} />
    <PortalContainer />
  </ThemeContext.Provider>,
);
