package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func runAPIServer(args []string) int {
	return runCommand(apiserver.NewAPIServerCommand(), args)
}

func runControllerManager(args []string) int {
	return runCommand(controllermanager.NewControllerManagerCommand(), args)
}

func runCommand(command *cobra.Command, args []string) int {
	command.SetArgs(args)
	return cli.Run(command)
}

// runPlainEtcd is the etcd that everybody knows, with all its flags.
func runPlainEtcd([]string) int {
	etcdmain.Main(os.Args) // exits by itself
	return 0
}

// runEtcd runs a one-member etcd in the folder args[0] until SIGTERM or SIGINT. It listens on sockets in that folder
// only.
func runEtcd(args []string) int {
	if len(args) != 1 {
		return usage("etcd needs one argument: its data folder")
	}
	if err := serveEtcd(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane etcd:", err)
		return 1
	}
	return 0
}

func serveEtcd(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the data folder: %w", err)
	}
	// The peer listener takes the host of its URL for a file name and forgets the path, so it gets a relative name.
	// What is advertised, which nobody here reads, has a port because etcd before 3.7 insists on one.
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("enter the data folder: %w", err)
	}
	client := url.URL{Scheme: "unix", Path: filepath.Join(dir, "client")}
	advertised := url.URL{Scheme: "unix", Host: "client:0"}
	peer := url.URL{Scheme: "unix", Host: "peer:0"}

	config := embed.NewConfig()
	config.Name = "test"
	config.Dir = filepath.Join(dir, "data")
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{advertised}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.LogLevel = "warn"
	// The data lives as long as the test: it has to survive a killed process, not a power failure.
	config.UnsafeNoFsync = true
	// Raft keeps its log in memory up to the last snapshot. There is no slow follower to keep it for.
	config.SnapshotCount, config.SnapshotCatchUpEntries = 1000, 100

	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return err
	}
}
