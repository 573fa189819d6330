// The broker of aedes' own example, on the port given.
//
// DENIED=NAME: nobody hears what this client says on `t`, of which it is told nothing. SLOW_MS=N: a message is let in after up to so long,
// those of one client in order.
import net from 'node:net'
import process from 'node:process'

const { Aedes } = await import(process.env.AEDES)
const { DENIED, SLOW_MS = 0, TEST_HOST = '127.0.0.1' } = process.env
const lines = new Map()

function authorizePublish (client, packet, done) {
  if (!client) return done(null)
  const before = lines.get(client) ?? Promise.resolve()
  const time = Math.random() * SLOW_MS
  lines.set(client, before.then(() => new Promise(resolve => setTimeout(resolve, time))).then(() => {
    if (client.id === DENIED && packet.topic === 't') packet.topic = 'nowhere'
    done(null)
  }))
}

const broker = await Aedes.createBroker(DENIED ? { authorizePublish } : {})
net.createServer(broker.handle).listen(Number(process.argv[2]), TEST_HOST)
