// Command controlplane is a Kubernetes control plane for tests and demonstrations in one binary: the real etcd,
// kube-apiserver and kube-controller-manager, each in a process of its own, a supervisor that they never outlive, and
// kubectl.
package main

import (
	"fmt"
	"os"
)

func main() {
	commands := map[string]func(args []string) int{
		"etcd":               runEtcd,
		"apiserver":          runAPIServer,
		"controller-manager": runControllerManager,
		"kubectl":            runKubectl,
		"supervise":          runSupervise,
		"up":                 runUp,
	}
	if len(os.Args) < 2 {
		os.Exit(usage("a command is missing"))
	}
	run, ok := commands[os.Args[1]]
	if !ok {
		os.Exit(usage(fmt.Sprintf("there is no command %q", os.Args[1])))
	}
	os.Exit(run(os.Args[2:]))
}

func usage(problem string) int {
	fmt.Fprintf(os.Stderr, `controlplane: %s

usage:
  controlplane up [--kubeconfig PATH] [--node-standin BINARY]
        start a control plane, wait until it is ready, end it on Ctrl-C
  controlplane supervise
        keep a control plane for the program at the other end of stdin and stdout (see package supervisor)
  controlplane etcd DIR
  controlplane apiserver FLAGS...
  controlplane controller-manager FLAGS...
        one component, with the flags of its own
  controlplane kubectl ARGUMENTS...
        kubectl
`, problem)
	return 2
}
