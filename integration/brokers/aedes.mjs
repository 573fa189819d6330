// The broker of aedes' own example, on the port given.
import net from 'node:net'
import process from 'node:process'

const { Aedes } = await import(process.env.AEDES)
const broker = await Aedes.createBroker()
net.createServer(broker.handle).listen(Number(process.argv[2]), '127.0.0.1')
