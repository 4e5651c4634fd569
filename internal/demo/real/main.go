// Command real gives the demo on a real API server: see package story.
//
// It compiles etcd, kube-apiserver and kube-controller-manager the first time, runs them on this machine, and removes
// them and their files when it ends. With -kubeconfig it runs on a cluster to which examples/replicaset/deploy has been
// applied: see "make kind-demo".
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/thermostat-go/thermostat/internal/demo/story"
)

func main() {
	keep := flag.Bool("keep", false, "stay up at the end until Ctrl-C, for kubectl")
	programs := flag.String("programs", "", "the directory with the controllers' programs")
	builtin := flag.Bool("builtin", false, "leave Deployments to Kubernetes' own controller")
	kubeconfig := flag.String("kubeconfig", "",
		"the demo's cluster, in which the controller has been deployed; empty: one on this machine")
	flag.Parse()
	if flag.NArg() > 0 || (*programs == "") == (*kubeconfig == "") {
		fmt.Fprintln(os.Stderr, "real: either -programs or -kubeconfig is needed, and there are no arguments but "+
			"flags; "+
			"run make demo REAL=1 or make kind-demo")
		os.Exit(2)
	}
	say := story.NewNarrator(os.Stdout)
	var s story.Stage = &here{narrator: say, programs: *programs, builtin: *builtin}
	if *kubeconfig != "" {
		s = &inCluster{narrator: say, kubeconfig: *kubeconfig}
	}
	os.Exit(story.Main(say, s, *keep))
}
