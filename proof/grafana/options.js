// What a panel's field configuration may say. The packages do not export Grafana's own list, only the machinery for it.
import { FieldConfigOptionsRegistry } from '@grafana/data';

const STANDARD = [
  'unit', 'decimals', 'min', 'max', 'color', 'thresholds', 'mappings', 'displayName', 'noValue', 'links', 'filterable',
];
const CUSTOM = [
  'drawStyle', 'lineWidth', 'lineStyle', 'lineInterpolation', 'fillOpacity', 'gradientMode', 'showPoints', 'pointSize',
  'spanNulls', 'stacking', 'thresholdsStyle', 'axisLabel', 'axisPlacement', 'axisSoftMax', 'scaleDistribution', 'hideFrom',
  'width', 'minWidth', 'align', 'cellOptions', 'inspect', 'filterable', 'hidden',
  'wrapText',
];
const asItIs = (value) => value;
const option = (id, isCustom) => ({
  id: isCustom ? `custom.${id}` : id,
  path: id,
  isCustom,
  name: id,
  editor: () => null,
  override: () => null,
  process: asItIs,
  settings: {},
  shouldApply: () => true,
});

export const options = new FieldConfigOptionsRegistry(() => [
  ...STANDARD.map((id) => option(id, false)),
  ...CUSTOM.map((id) => option(id, true)),
]);

/** Options that a dashboard sets and that are not above: they would be silently ignored here. */
export function unknown(panel) {
  const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
  const set = [
    ...Object.keys(defaults).filter((key) => key !== 'custom'),
    ...Object.keys(defaults.custom ?? {}).map((key) => `custom.${key}`),
    ...overrides.flatMap((one) => one.properties.map((property) => property.id)),
  ];
  return set.filter((id) => !options.getIfExists(id));
}
