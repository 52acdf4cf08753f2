// What a program in node does with pg: plain, with parameters, prepared, in a pool; prints what it got as JSON.
const { createRequire } = require("node:module");
const { Client, Pool } = createRequire(`${process.env.MODULES}/`)("pg");

async function main() {
  const settings = { host: "127.0.0.1", port: Number(process.env.PORT), user: "ana", database: "shop" };
  settings.password = process.env.TOKEN;
  const found = {};
  const client = new Client(settings);
  const notices = [];
  client.on("notice", (notice) => notices.push(notice.message));
  await client.connect();
  const plain = "SELECT city, COUNT(*) AS n FROM orders WHERE amount < 801 GROUP BY city ORDER BY city";
  found.plain = (await client.query(plain)).rows;
  found.again = (await client.query(plain)).rows;
  const text = "SELECT COUNT(*) AS n FROM orders WHERE city = $1 AND amount < $2";
  found.parameters = (await client.query(text, ["Zug", 802.5])).rows;
  found.prepared = [];
  for (let time = 0; time < 3; time += 1) {
    found.prepared.push((await client.query({ name: "counted", text, values: ["Bern", 803.5] })).rows);
  }
  found.catalogue = (await client.query("SELECT relname FROM pg_class WHERE relname = $1", ["orders"])).rows;
  try {
    await client.query("SELECT * FROM orders");
  } catch (error) {
    found.refused = { code: error.code, hint: error.hint };
  }
  try {
    await client.query("SELECT 1;SELECT COUNT(nonsense) AS n FROM orders");
  } catch (error) {
    found.marked = { code: error.code, position: error.position };
  }
  found.notices = notices.length;
  await client.end();
  const pool = new Pool({ ...settings, max: 3 });
  const same = await Promise.all([1, 2, 3, 4, 5, 6].map(() => pool.query(text, ["Basel", 804.5])));
  found.together = same.map((result) => result.rows[0].n);
  await pool.end();
  console.log(JSON.stringify(found));
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
