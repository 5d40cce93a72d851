// CoreDNS with the few plugins that a cluster's DNS needs. The stock program
// links some fifty, with the client libraries of every cloud among them.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	// The order in which a query passes the plugins, as in CoreDNS's plugin.cfg.
	dnsserver.Directives = []string{"reload", "health", "ready", "errors", "log", "cache", "kubernetes"}
	coremain.Run()
}
