// mqtt.js as a client of the broker at PORT: one line of JSON a feature.
//
// usage: NODE_PATH=…/node_modules node mqttjs_client.js PORT 3|4|5
//
// Credentials, where a broker wants some: MQTT_USER and MQTT_PASSWORD.
'use strict'

const assert = require('assert')
const crypto = require('crypto')
const mqtt = require('mqtt')

const PORT = Number(process.argv[2])
const HOST = process.env.TEST_HOST ?? '127.0.0.1'
const VERSION = Number(process.argv[3])
const PATIENCE_MS = 20000
const PREFIX = `mqttjs${VERSION}`

function inTime(what, promise) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} in time`)), PATIENCE_MS)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

// A client whose calls resolve when the broker has answered.
class Guest {
  static async come(name, { persistent = false, will } = {}) {
    const guest = new Guest()
    const options = {
      clientId: `${PREFIX}-${name}`, clean: !persistent, protocolVersion: VERSION, reconnectPeriod: 0, will,
      username: process.env.MQTT_USER, password: process.env.MQTT_PASSWORD,
    }
    if (VERSION === 3) options.protocolId = 'MQIsdp'
    if (VERSION === 5 && persistent) options.properties = { sessionExpiryInterval: 3600 }
    guest.inbox = []
    guest.client = mqtt.connect(`mqtt://${HOST}:${PORT}`, options)
    guest.client.on('message', (topic, payload, packet) => {
      guest.inbox.push(packet)
      if (guest.wake) guest.wake()
    })
    guest.connack = await inTime('CONNACK', new Promise((resolve, reject) => {
      guest.client.once('connect', resolve)
      guest.client.once('error', reject)
    }))
    return guest
  }

  subscribe(topic, qos = 0) {
    return inTime('SUBACK', this.client.subscribeAsync(topic, { qos }))
  }

  publish(topic, payload, options = {}) {
    return inTime('acknowledgement', this.client.publishAsync(topic, payload, options))
  }

  async message() {
    while (this.inbox.length === 0) {
      await inTime('message', new Promise((resolve) => { this.wake = resolve }))
    }
    return this.inbox.shift()
  }

  leave() {
    return inTime('goodbye', this.client.endAsync())
  }

  vanish() {
    this.client.stream.destroy()
  }
}

const publishes = (qos) => async () => {
  const receiver = await Guest.come(`r${qos}`)
  const sender = await Guest.come(`s${qos}`)
  const topic = `${PREFIX}/qos${qos}`
  await receiver.subscribe(topic, qos)
  for (let number = 0; number < 50; number++) await sender.publish(topic, `message ${number}`, { qos })
  for (let number = 0; number < 50; number++) {
    const message = await receiver.message()
    assert.strictEqual(message.payload.toString(), `message ${number}`)
    assert.strictEqual(message.qos, qos)
    assert.strictEqual(message.retain, false)
  }
  await receiver.leave()
  await sender.leave()
  return '50 in order'
}

const FEATURES = {
  qos0: publishes(0),
  qos1: publishes(1),
  qos2: publishes(2),

  async retained() {
    const sender = await Guest.come('ret-s')
    const receiver = await Guest.come('ret-r')
    const topic = `${PREFIX}/retained`
    await sender.publish(topic, 'kept', { qos: 1, retain: true })
    await receiver.subscribe(topic, 1)
    const message = await receiver.message()
    assert(message.retain)
    assert.strictEqual(message.payload.toString(), 'kept')
    await sender.publish(topic, '', { qos: 1, retain: true })
    assert.strictEqual((await receiver.message()).payload.length, 0)
    await receiver.leave()
    const late = await Guest.come('ret-l')
    await late.subscribe([topic, `${PREFIX}/retained-end`], 1)
    await sender.publish(`${PREFIX}/retained-end`, 'end', { qos: 1 })
    assert.strictEqual((await late.message()).payload.toString(), 'end')
    await late.leave()
    await sender.leave()
    return 'kept, then cleared'
  },

  async will() {
    const receiver = await Guest.come('will-r')
    const topic = `${PREFIX}/will`
    await receiver.subscribe(topic, 1)
    const dying = await Guest.come('will-s', { will: { topic, payload: Buffer.from('gone'), qos: 1, retain: false } })
    dying.vanish()
    const message = await receiver.message()
    assert.strictEqual(message.payload.toString(), 'gone')
    assert.strictEqual(message.qos, 1)
    await receiver.leave()
    return 'published'
  },

  async persistent() {
    const topic = `${PREFIX}/persistent`
    const sender = await Guest.come('keep-s')
    let receiver = await Guest.come('keep', { persistent: true })
    await receiver.subscribe(topic, 1)
    await receiver.leave()
    for (let number = 0; number < 20; number++) await sender.publish(topic, `queued ${number}`, { qos: 1 })
    receiver = await Guest.come('keep', { persistent: true })
    assert(receiver.connack.sessionPresent || VERSION === 3)
    for (let number = 0; number < 20; number++) {
      assert.strictEqual((await receiver.message()).payload.toString(), `queued ${number}`)
    }
    await sender.publish(topic, 'live')
    assert.strictEqual((await receiver.message()).payload.toString(), 'live')
    await receiver.leave()
    await sender.leave()
    return '20 queued and one live'
  },

  async large() {
    const topic = `${PREFIX}/large`
    const receiver = await Guest.come('large-r')
    const sender = await Guest.come('large-s')
    const hash = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex')
    await receiver.subscribe(topic, 1)
    for (const qos of [0, 1]) {
      const payload = crypto.randomBytes(5000000)
      await sender.publish(topic, payload, { qos })
      assert.strictEqual(hash((await receiver.message()).payload), hash(payload))
    }
    await receiver.leave()
    await sender.leave()
    return '5 MB there and back, same hash'
  },

  async wildcards() {
    const sender = await Guest.come('wild-s')
    const seen = []
    for (const [name, topic] of [['plus', 'w/+/end'], ['hash', 'w/#'], ['all', '#']]) {
      const receiver = await Guest.come(`wild-${name}`)
      await receiver.subscribe(`${PREFIX}/${topic}`)
      for (const level of ['w/a/end', 'w/a/b/end', 'w', 'end']) await sender.publish(`${PREFIX}/${level}`, level)
      await sender.publish(`${PREFIX}/w/x/end`, 'end-of-list')
      const got = []
      while (got.at(-1) !== 'end-of-list') got.push((await receiver.message()).payload.toString())
      seen.push(`${name}:${got.join()}`)
      await receiver.leave()
    }
    await sender.leave()
    return seen.join(' ')
  },

  async properties() {
    if (VERSION !== 5) return 'none in this version'
    const topic = `${PREFIX}/properties`
    const receiver = await Guest.come('prop-r')
    const sender = await Guest.come('prop-s')
    await receiver.subscribe(topic, 1)
    const properties = {
      userProperties: { a: ['1', '2'], 'ü': 'ß' },
      contentType: 'text/plain',
      responseTopic: 'answer/here',
      correlationData: Buffer.from([0, 1, 255]),
      payloadFormatIndicator: true,
      messageExpiryInterval: 1000,
    }
    for (const qos of [0, 1]) {
      await sender.publish(topic, 'with properties', { qos, properties })
      const got = (await receiver.message()).properties
      assert.deepStrictEqual(JSON.parse(JSON.stringify(got.userProperties)), properties.userProperties)
      assert.strictEqual(got.contentType, 'text/plain')
      assert.strictEqual(got.responseTopic, 'answer/here')
      assert.deepStrictEqual(got.correlationData, properties.correlationData)
      assert.strictEqual(got.payloadFormatIndicator, true)
      assert([999, 1000].includes(got.messageExpiryInterval))
    }
    await receiver.leave()
    await sender.leave()
    return 'all there'
  },
}

async function main() {
  for (const [feature, run] of Object.entries(FEATURES)) {
    let report
    try {
      report = { feature, ok: true, detail: await run() }
    } catch (error) {
      report = { feature, ok: false, detail: String(error.stack) }
    }
    console.log(JSON.stringify(report))
  }
  // Clients that failed half-way would keep the process.
  process.exit(0)
}

main()
