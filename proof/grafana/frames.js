// Prometheus' answers as the frames that Grafana's Prometheus data source makes of them.
import { FieldType, createDataFrame } from '@grafana/data';

/** The frames of all queries of a panel; throws Prometheus' own words. */
export async function ask(prometheus, targets, time) {
  const answers = await Promise.all(targets.map((target) => answer(prometheus, target, time)));
  const table = targets.some((target) => target.format === 'table');
  return table ? tables(targets, answers) : answers.flatMap((series, i) => series.map((one) => line(targets[i], one)));
}

async function answer(prometheus, target, { from, to, step }) {
  const [path, when] = target.instant ? ['query', { time: to }] : ['query_range', { start: from, end: to, step }];
  const reply = await fetch(`${prometheus}/api/v1/${path}?${new URLSearchParams({ query: target.expr, ...when })}`);
  const told = await reply.json();
  if (told.status !== 'success') {
    throw new Error(`${told.error}: ${target.expr}`);
  }
  return told.data.result;
}

function line(target, series) {
  const points = series.values ?? [series.value];
  return createDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: points.map(([at]) => at * 1000) },
      {
        name: 'Value',
        type: FieldType.number,
        labels: series.metric,
        values: points.map(([, value]) => Number(value)),
        config: { displayNameFromDS: legend(target.legendFormat, series.metric) },
      },
    ],
  });
}

function legend(format, labels) {
  if (format && format !== '__auto') {
    return format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');
  }
  return Object.keys(labels).length ? JSON.stringify(labels) : 'value';
}

/** One frame a query: time, its labels in their order, the value; named by query where there are several. */
function tables(targets, answers) {
  return answers.map((series, i) => {
    const names = [...new Set(series.flatMap((one) => Object.keys(one.metric)))].sort();
    const value = targets.length > 1 ? `Value #${targets[i].refId}` : 'Value';
    return createDataFrame({
      refId: targets[i].refId,
      fields: [
        { name: 'Time', type: FieldType.time, values: series.map((one) => one.value[0] * 1000) },
        ...names.map((name) => ({
          name,
          type: FieldType.string,
          config: { filterable: true },
          values: series.map((one) => one.metric[name] ?? ''),
        })),
        { name: value, type: FieldType.number, values: series.map((one) => Number(one.value[1])) },
      ],
    });
  });
}
