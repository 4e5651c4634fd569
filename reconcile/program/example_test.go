package program_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/program"
)

// A program that prints where its API server is. In a pod, and without a flag, the argument is empty.
func ExampleMain() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	kubeconfig := filepath.Join(folder, "config")
	if err := os.WriteFile(kubeconfig, []byte(`
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here}}]
clusters: [{name: here, cluster: {server: "https://kubernetes.example:6443"}}]
`), 0o600); err != nil {
		log.Fatal(err)
	}
	program.Main(kubeconfig, func(_ context.Context, cfg *rest.Config) error {
		fmt.Println(cfg.Host)
		return nil
	})
	// Output: https://kubernetes.example:6443
}
