// Swagger UI over the contract beside this page, with the address of this server in place of a path. Its validator would
// send that address to a third party.
fetch('openapi.json').then(answer => answer.json()).then(spec => {
  for (const server of spec.servers) {
    server.url = new URL(server.url, location.href).href.replace(/\/$/, '');
  }
  SwaggerUIBundle({
    spec: spec,
    dom_id: '#viewer',
    presets: [SwaggerUIBundle.presets.apis],
    deepLinking: true,
    displayRequestDuration: true,
    defaultModelsExpandDepth: 0,
    tryItOutEnabled: true,
    validatorUrl: null
  });
}, failure => {
  document.getElementById('viewer').textContent = 'The contract could not be loaded: ' + failure;
});
