// Command controlplane is a Kubernetes control plane for tests and demonstrations in one binary: the real etcd,
// kube-apiserver and kube-controller-manager, each in a process of its own, a stand-in for a node, kubectl, and a
// supervisor that none of them outlives.
//
// Started by the name of one of its programs, through a link, the binary is that program: etcd, kube-apiserver,
// kube-controller-manager or kubectl.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// programs are what the binary is when it is started by their names.
var programs = map[string]func(args []string) int{
	"etcd":                    runPlainEtcd,
	"kube-apiserver":          runAPIServer,
	"kube-controller-manager": runControllerManager,
	"kubectl":                 runKubectl,
}

var commands = map[string]func(args []string) int{
	"etcd":               runEtcd,
	"apiserver":          runAPIServer,
	"controller-manager": runControllerManager,
	"node":               runNode,
	"kubectl":            runKubectl,
	"supervise":          runSupervise,
	"up":                 runUp,
}

func main() {
	if run, ok := programs[filepath.Base(os.Args[0])]; ok {
		os.Exit(run(os.Args[1:]))
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
  controlplane up [--kubeconfig PATH] [--controllers LIST]
        start a control plane and a node stand-in, wait until they are ready, end them on Ctrl-C
  controlplane supervise
        keep a control plane for the program at the other end of stdin and stdout (see package supervisor)
  controlplane etcd DIR
  controlplane apiserver FLAGS...
  controlplane controller-manager FLAGS...
        one component, with the flags of its own
  controlplane node --kubeconfig PATH [--name NAME] [--metrics] [--start-after D] [--ready-after D]
        [--end-after D]
        a stand-in for a node (see package node)
  controlplane kubectl ARGUMENTS...
        kubectl
`, problem)
	return 2
}
