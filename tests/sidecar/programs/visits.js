// A gRPC program in JavaScript that knows nothing of Stilltrue: as visits.py, with a queue before its workers.
'use strict';
const grpc = require('@grpc/grpc-js');

const METHOD = '/shop.Shop/Visit';
const [outbound, workers] = [process.argv[2], Number(process.argv[3])];
const bytes = {
  path: METHOD, requestStream: false, responseStream: false,
  requestSerialize: (b) => b, requestDeserialize: (b) => b, responseSerialize: (b) => b, responseDeserialize: (b) => b,
};
const clients = new Map();
let busy = 0;
const queue = [];

function clientOf(authority) {
  if (!clients.has(authority)) {
    clients.set(authority, new grpc.Client(outbound, grpc.credentials.createInsecure(), { 'grpc.default_authority': authority }));
  }
  return clients.get(authority);
}

function work(call, done) {
  if (!call.request.length) return done(null, Buffer.from([8, 1])); // a health check: SERVING
  const wish = JSON.parse(call.request);
  setTimeout(() => {
    if (!wish.path.length) return done(null, Buffer.from('[]'));
    const [authority, ...rest] = wish.path;
    const trace = call.metadata.get('traceparent')[0].split('-');
    const metadata = new grpc.Metadata();
    metadata.set('traceparent', [trace[0], trace[1], '00f067aa0ba902b8', trace[3]].join('-'));
    const request = Buffer.from(JSON.stringify({ path: rest, hold: 0 }));
    clientOf(authority).makeUnaryRequest(METHOD, bytes.requestSerialize, bytes.responseDeserialize, request, metadata, (error, reply) => {
      done(error, error ? null : Buffer.from(JSON.stringify([authority, ...JSON.parse(reply)])));
    });
  }, 1000 * wish.hold);
}

function next() {
  while (busy < workers && queue.length) {
    const [call, done] = queue.shift();
    busy += 1;
    work(call, (error, reply) => { busy -= 1; done(error, reply); next(); });
  }
}

const server = new grpc.Server();
const enqueue = (call, done) => { queue.push([call, done]); next(); };
server.addService({ Visit: bytes }, { Visit: enqueue });
server.addService({ Check: { ...bytes, path: '/grpc.health.v1.Health/Check' } }, { Check: enqueue });
server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(JSON.stringify({ port }));
});
