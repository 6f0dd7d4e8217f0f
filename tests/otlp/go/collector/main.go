// An OpenTelemetry Collector with only the parts that the tests need: OTLP in, batches, OTLP out over gRPC or HTTP.
// It runs with the configuration FILE until SIGTERM, and then sends the rest.
//
//	collector FILE
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "collector:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	// The Collector installs its own handler only after it reports that it is ready.
	untilSignal, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	collector, err := otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo:               component.BuildInfo{Command: "collector", Description: "for tests", Version: "0"},
		Factories:               factories,
		DisableGracefulShutdown: true,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs:              files,
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
			DefaultScheme:     "file",
		}},
	})
	if err != nil {
		return err
	}
	return collector.Run(untilSignal)
}

func factories() (otelcol.Factories, error) {
	in, batch := otlpreceiver.NewFactory(), batchprocessor.NewFactory()
	grpc, http := otlpexporter.NewFactory(), otlphttpexporter.NewFactory()
	return otelcol.Factories{
		Receivers:  map[component.Type]receiver.Factory{in.Type(): in},
		Processors: map[component.Type]processor.Factory{batch.Type(): batch},
		Exporters:  map[component.Type]exporter.Factory{grpc.Type(): grpc, http.Type(): http},
		Telemetry:  otelconftelemetry.NewFactory(),
	}, nil
}
