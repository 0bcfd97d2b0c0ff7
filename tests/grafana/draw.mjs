// node draw.mjs JOBS.json: draws each page into its picture, prints what became of each panel as JSON.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const SOON = 30_000;
const PAGE = fileURLToPath(new URL('page.html', import.meta.url));
const OPTIONS = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--allow-file-access-from-files'];

async function draw(browser, job) {
  const tab = await browser.newPage({ viewport: { width: 1464, height: 900 } });
  const complaints = [];
  tab.on('pageerror', (error) => complaints.push(String(error)));
  await tab.addInitScript((page) => { window.PAGE = page; }, job.page);
  await tab.goto(`file://${PAGE}`);
  const settled = () => {
    const panels = [...document.querySelectorAll('[data-panel]')];
    return panels.length > 0 && panels.every((one) => one.dataset.state !== 'loading');
  };
  await tab.waitForFunction(settled, null, { timeout: SOON }).catch((error) => complaints.push(String(error)));
  const height = await tab.evaluate(() => document.querySelector('.board')?.scrollHeight ?? 900);
  await tab.setViewportSize({ width: 1464, height: height + 12 });
  await tab.waitForTimeout(600);
  if (job.picture) {
    await tab.screenshot({ path: job.picture, clip: { x: 0, y: 0, width: 1464, height: height + 12 } });
  }
  const panels = await tab.$$eval('[data-panel]', (found) => found.map((one) => ({
    id: Number(one.dataset.panel),
    state: one.dataset.state,
    told: one.dataset.told,
    rows: Number(one.dataset.rows ?? 0),
    columns: JSON.parse(one.dataset.columns ?? '[]'),
    text: one.innerText,
  })));
  await tab.close();
  return { name: job.name, panels, complaints };
}

const jobs = JSON.parse(readFileSync(process.argv[2], 'utf-8'));
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: OPTIONS });
const drawn = [];
for (const job of jobs) {
  drawn.push(await draw(browser, job));
}
await browser.close();
console.log(JSON.stringify(drawn));
