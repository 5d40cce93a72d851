//go:build tools

// Package tools names the programs that dev/setup.sh builds as they are, so
// that go.mod and go.sum pin them and all they are made of.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
