// OpenTelemetry's JavaScript SDK sends spans, logs within them, a counter and a histogram in JSON over HTTP.
// Arguments: the address, the number of each, and the attributes of each span as JSON.
import { context, trace } from "@opentelemetry/api";
import { OTLPLogExporter } from "@opentelemetry/exporter-logs-otlp-http";
import { OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-http";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { defaultResource, resourceFromAttributes } from "@opentelemetry/resources";
import { BatchLogRecordProcessor, LoggerProvider } from "@opentelemetry/sdk-logs";
import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";

const [address, operations, attributes] = process.argv.slice(2);
const url = (signal) => ({ url: `http://${address}/v1/${signal}` });
const named = resourceFromAttributes({ "service.name": "shop", "service.instance.id": "json" });
const resource = defaultResource().merge(named);
const tracers = new BasicTracerProvider({
  resource,
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter(url("traces")))],
});
const loggers = new LoggerProvider({
  resource,
  processors: [new BatchLogRecordProcessor({ exporter: new OTLPLogExporter(url("logs")) })],
});
const exporter = new OTLPMetricExporter(url("metrics"));
const meters = new MeterProvider({ resource, readers: [new PeriodicExportingMetricReader({ exporter })] });

const tracer = tracers.getTracer("lib", "1.0");
const logger = loggers.getLogger("lib");
const meter = meters.getMeter("lib");
const requests = meter.createCounter("requests");
const durations = meter.createHistogram("duration", { unit: "s" });
for (let n = 0; n < Number(operations); n += 1) {
  const span = tracer.startSpan("pay", { attributes: JSON.parse(attributes) });
  logger.emit({
    severityNumber: 13,
    body: `payment ${n}`,
    attributes: { user: "u" },
    context: trace.setSpan(context.active(), span),
  });
  span.end();
  requests.add(2, { route: "/pay" });
  durations.record(n);
}
for (const provider of [tracers, meters, loggers]) {
  await provider.shutdown();
}
