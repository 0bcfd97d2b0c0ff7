// One panel with Grafana's own components; `data-state` says what came of it.
import React from 'react';
import {
  FieldColorModeId, applyFieldOverrides, cacheFieldDisplayNames, reduceField, renderMarkdown, standardTransformers,
  standardTransformersRegistry, toUtc, transformDataFrame,
} from '@grafana/data';
import { BigValue, PanelChrome, TimeSeries } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { firstValueFrom } from 'rxjs';
import { ask } from './frames.js';
import { options, unknown } from './options.js';

const DRAWN = ['stat', 'table', 'text', 'timeseries'];
const transformers = new Map(Object.values(standardTransformers).map((one) => [one.id, one]));
standardTransformersRegistry.setInit(() =>
  [...transformers.values()].map((one) => ({ id: one.id, name: one.name, transformation: async () => one })),
);

/** Grafana 12.2 and later move this option when they open a dashboard of an earlier schema. */
const migrated = (overrides) => overrides.map((one) => ({
  ...one,
  properties: one.properties.flatMap((property) =>
    property.id === 'custom.cellOptions' && property.value.wrapText
      ? [property, { id: 'custom.wrapText', value: true }]
      : [property]),
}));

async function load(panel, { prometheus, time, theme }) {
  const ignored = unknown(panel);
  if (ignored.length) {
    throw new Error(`options that this page does not know: ${ignored}`);
  }
  const frames = await ask(prometheus, panel.targets, time);
  const changes = panel.transformations ?? [];
  const missing = changes.filter((one) => !standardTransformersRegistry.getIfExists(one.id));
  if (missing.length) {
    throw new Error(`transformations that are not in Grafana's core: ${missing.map((one) => one.id)}`);
  }
  const context = { interpolate: (text) => text };
  const data = changes.length ? await firstValueFrom(transformDataFrame(changes, frames, context)) : frames;
  const { defaults = {} } = panel.fieldConfig ?? {};
  const overrides = migrated(panel.fieldConfig?.overrides ?? []);
  const made = applyFieldOverrides({
    data,
    fieldConfig: { defaults: { color: { mode: FieldColorModeId.PaletteClassic }, ...defaults }, overrides },
    replaceVariables: (text) => text,
    theme,
    timeZone: 'utc',
    fieldConfigRegistry: options,
  });
  cacheFieldDisplayNames(made);
  return made;
}

function drawn(panel, frames, width, height, { time, theme }) {
  switch (panel.type) {
    case 'stat': {
      const field = frames[0].fields.find((one) => one.type === 'number');
      const value = reduceField({ field, reducers: ['lastNotNull'] }).lastNotNull;
      const { colorMode, graphMode, justifyMode, textMode } = panel.options;
      return (
        <BigValue
          theme={theme} width={width} height={height} value={field.display(value)} colorMode={colorMode}
          graphMode={graphMode} justifyMode={justifyMode} textMode={textMode}
        />
      );
    }
    case 'timeseries': {
      const range = { from: toUtc(time.from * 1000), to: toUtc(time.to * 1000) };
      return (
        <TimeSeries
          frames={frames} structureRev={1} timeRange={{ ...range, raw: range }} timeZone="utc" width={width}
          height={height} legend={{ calcs: [], ...panel.options.legend }} options={{}}
        />
      );
    }
    default: {
      const by = panel.options.sortBy ?? [];
      return (
        <TableNG
          data={frames[0]} width={width} height={height} sortBy={by} showTypeIcons={false} noHeader={false}
          cellHeight={panel.options.cellHeight} fieldConfig={panel.fieldConfig} structureRev={1}
          enableSharedCrosshair={false} getActions={() => []} timeRange={undefined}
        />
      );
    }
  }
}

const empty = (frames) => !frames.some((frame) => frame.length > 0 && frame.fields.length > 0);

export function Panel({ panel, page, width, height }) {
  const [state, setState] = React.useState({ name: 'loading' });
  React.useEffect(() => {
    if (panel.type === 'text') {
      setState({ name: 'ok' });
    } else if (!DRAWN.includes(panel.type)) {
      setState({ name: 'unsupported', told: panel.type });
    } else {
      load(panel, page).then(
        (frames) => setState(empty(frames) ? { name: 'nodata' } : { name: 'ok', frames }),
        (error) => setState({ name: 'error', told: String(error) }),
      );
    }
  }, []);
  const inside = (innerWidth, innerHeight) => {
    if (panel.type === 'text') {
      return <div className="markdown-html" dangerouslySetInnerHTML={{ __html: renderMarkdown(panel.options.content) }} />;
    }
    return state.name === 'ok' ? (
      drawn(panel, state.frames, innerWidth, innerHeight, page)
    ) : (
      <div className="said">{{ nodata: panel.fieldConfig.defaults.noValue ?? 'No data', loading: '' }[state.name] ?? state.told}</div>
    );
  };
  const columns = state.frames?.[0]?.fields.map((field) => field.state?.displayName ?? field.name);
  return (
    <div data-panel={panel.id} data-state={state.name} data-told={state.told ?? ''}
      data-columns={JSON.stringify(panel.type === 'table' ? (columns ?? []) : [])}
      data-rows={state.frames?.reduce((sum, frame) => sum + frame.length, 0) ?? 0}>
      <PanelChrome title={panel.title} description={panel.description} width={width} height={height}>
        {inside}
      </PanelChrome>
    </div>
  );
}
