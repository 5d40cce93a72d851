// The API server of the newest Kubernetes. No other part of that version is needed: the CRDs with their CEL
// rules, the admission policies and what the chart renders are tried against it (dev/api-servers.sh).
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	// What the main package of the API server registers besides.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
