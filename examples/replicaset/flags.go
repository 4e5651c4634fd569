package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// options has the values of the flags.
type options struct {
	kubeconfig     string
	namespace      string
	workers        int
	qps            float32
	burst          int
	metricsAddress string
	startupTimeout time.Duration

	leaderElect    bool
	leaseNamespace string
	leaseName      string
	identity       string
	leaseDuration  time.Duration
	renewDeadline  time.Duration
	retryPeriod    time.Duration
}

func parseFlags(args []string) (options, error) {
	var o options
	fs := pflag.NewFlagSet("replicaset", pflag.ContinueOnError)
	fs.Usage = func() {
		fmt.Printf("replicaset keeps the wanted number of pods for each ReplicaSet.\n\nFlags:\n%s", fs.FlagUsages())
	}
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"file with the API server and credentials; empty: the pod's service account, else $KUBECONFIG, else "+
			"~/.kube/config")
	fs.StringVar(&o.namespace, "namespace", "", "namespace whose ReplicaSets are reconciled; empty: all namespaces")
	fs.IntVar(&o.workers, "workers", 5, "number of ReplicaSets that are reconciled at the same time")
	fs.Float32Var(&o.qps, "kube-api-qps", 20, "average number of requests to the API server per second")
	fs.IntVar(&o.burst, "kube-api-burst", 30, "requests to the API server that may be made at once")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", "0",
		"host:port that serves /metrics, /healthz and /readyz, on the loopback address if there is no host; 0: none")
	fs.DurationVar(&o.startupTimeout, "startup-timeout", 30*time.Second,
		"give up when the API server cannot be reached for that long at the start")
	fs.BoolVar(&o.leaderElect, "leader-elect", true,
		"work only while holding the lease, so that several replicas can run")
	fs.StringVar(&o.leaseNamespace, "leader-elect-resource-namespace", "kube-system", "namespace of the lease")
	fs.StringVar(&o.leaseName, "leader-elect-resource-name", "thermostat-replicaset", "name of the lease")
	fs.StringVar(&o.identity, "leader-elect-identity", "",
		"name of this replica in the lease; empty: the host name, which is a pod's name")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"how long a standby sees an unchanged lease before it takes over")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"how long a leader that cannot renew its lease still leads")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second,
		"time between two tries to renew or acquire the lease")

	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	fs.AddGoFlag(logging.Lookup("v"))

	if err := fs.Parse(args); err != nil {
		return o, err
	}
	return o, o.validate(fs.Args())
}

func (o options) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: there are only flags, see --help", rest[0])
	case o.namespace != "" && len(validation.IsDNS1123Label(o.namespace)) > 0:
		return fmt.Errorf("--namespace=%s: %s", o.namespace, validation.IsDNS1123Label(o.namespace)[0])
	case o.workers < 1:
		return fmt.Errorf("--workers=%d: at least 1 is needed", o.workers)
	case !(o.qps > 0): // refuses NaN, too
		return fmt.Errorf("--kube-api-qps=%v: must be more than 0", o.qps)
	case o.burst < 1:
		return fmt.Errorf("--kube-api-burst=%d: at least 1 is needed", o.burst)
	case o.startupTimeout <= 0:
		return fmt.Errorf("--startup-timeout=%v: must be more than 0", o.startupTimeout)
	}
	if _, _, err := net.SplitHostPort(o.metricsAddress); err != nil && o.metricsAddress != "0" {
		return fmt.Errorf("--metrics-bind-address=%s: must be host:port, or 0 for none", o.metricsAddress)
	}
	return nil
}

// restConfig returns the configuration of --kubeconfig or, without the flag, of the cluster that the process runs in
// or, outside of one, the one that kubectl would use.
func (o options) restConfig() (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	if o.kubeconfig != "" || errors.Is(err, rest.ErrNotInCluster) {
		files := clientcmd.NewDefaultClientConfigLoadingRules()
		files.ExplicitPath = o.kubeconfig
		cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(files, nil).ClientConfig()
	}
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no API server is configured: use --kubeconfig or $KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("client configuration: %w", err)
	}
	cfg.QPS, cfg.Burst = o.qps, o.burst
	cfg.ContentType = runtime.ContentTypeProtobuf // half the work of JSON, for client and server
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return cfg, nil
}
