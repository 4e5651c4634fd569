package main

import (
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// runKubectl runs the kubectl of the control plane's version. It looks for no plugins.
func runKubectl(args []string) int {
	os.Args = append([]string{"kubectl"}, args...)
	command := cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{
		Arguments: os.Args,
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
	})
	util.CheckErr(cli.RunNoErrOutput(command)) // prints an error as kubectl does, and exits
	return 0
}
