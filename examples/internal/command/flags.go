package command

import (
	"cmp"
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

// Options has the values of the flags.
type Options struct {
	Kubeconfig     string
	Namespace      string
	Workers        int
	QPS            float32
	Burst          int
	MetricsAddress string
	StartupTimeout time.Duration

	LeaderElect    bool
	Shards         bool
	LeaseNamespace string
	LeaseName      string
	Identity       string
	LeaseDuration  time.Duration
	RenewDeadline  time.Duration
	RetryPeriod    time.Duration
}

const leaseNamespace = "leader-elect-resource-namespace"

// ParseFlags returns the options of a command line. The error is pflag.ErrHelp after --help.
func (p Program) ParseFlags(args []string) (Options, error) {
	var o Options
	fs := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	fs.Usage = func() {
		fmt.Printf("%s\n\nFlags:\n%s", p.About, fs.FlagUsages())
	}
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "",
		"file with the API server and credentials; empty: the pod's service account, else $KUBECONFIG, else "+
			"~/.kube/config")
	fs.StringVar(&o.Namespace, "namespace", "", "namespace whose "+p.Kind+"s are reconciled; empty: all namespaces")
	fs.IntVar(&o.Workers, "workers", 5, "number of "+p.Kind+"s that are reconciled at the same time")
	qps := cmp.Or(p.QPS, 20)
	fs.Float32Var(&o.QPS, "kube-api-qps", qps, "average number of requests to the API server per second")
	fs.IntVar(&o.Burst, "kube-api-burst", int(qps*3/2), "requests to the API server that may be made at once")
	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", "0",
		"host:port that serves /metrics, /healthz, /readyz and, on the loopback address only, /inspect/; without a "+
			"host "+
			"it is the loopback address; 0: none")
	fs.DurationVar(&o.StartupTimeout, "startup-timeout", 30*time.Second,
		"give up when the API server cannot be reached for that long at the start")
	fs.BoolVar(&o.LeaderElect, "leader-elect", true,
		"work only while holding the lease, so that several replicas can run")
	fs.StringVar(&o.LeaseNamespace, leaseNamespace, "kube-system", "namespace of the lease")
	fs.StringVar(&o.LeaseName, "leader-elect-resource-name", p.manager(), "name of the lease")
	fs.StringVar(&o.Identity, "leader-elect-identity", "",
		"name of this replica in the lease; empty: the host name, which is a pod's name")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"how long a standby sees an unchanged lease before it takes over")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"how long a leader that cannot renew its lease still leads")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 2*time.Second,
		"time between two tries to renew or acquire the lease")

	if p.By != nil {
		fs.BoolVar(&o.Shards, "shards", false,
			"all replicas are at work, each on a share of the "+p.Kind+"s, in place of one that leads; the flags "+
				"--leader-elect-* are about their leases, whose names begin with that of the lease; the replicas may "+
				"change all leases of the namespace, so --leader-elect-resource-namespace has to be given")
	}
	if p.Flags != nil {
		p.Flags(fs)
	}
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	fs.AddGoFlag(logging.Lookup("v"))

	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.Shards && !fs.Changed(leaseNamespace) {
		return o, fmt.Errorf("--shards needs --%s: the replicas may change all leases there, so it should be one of "+
			"their own", leaseNamespace)
	}
	return o, o.validate(fs.Args())
}

func (o Options) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: there are only flags, see --help", rest[0])
	case o.Namespace != "" && len(validation.IsDNS1123Label(o.Namespace)) > 0:
		return fmt.Errorf("--namespace=%s: %s", o.Namespace, validation.IsDNS1123Label(o.Namespace)[0])
	case o.Workers < 1:
		return fmt.Errorf("--workers=%d: at least 1 is needed", o.Workers)
	case !(o.QPS > 0): // refuses NaN, too
		return fmt.Errorf("--kube-api-qps=%v: must be more than 0", o.QPS)
	case o.Burst < 1:
		return fmt.Errorf("--kube-api-burst=%d: at least 1 is needed", o.Burst)
	case o.Shards && !o.LeaderElect:
		return errors.New("--shards needs --leader-elect: without it each replica would work on all objects")
	case o.StartupTimeout <= 0:
		return fmt.Errorf("--startup-timeout=%v: must be more than 0", o.StartupTimeout)
	}
	if _, _, err := net.SplitHostPort(o.MetricsAddress); err != nil && o.MetricsAddress != "0" {
		return fmt.Errorf("--metrics-bind-address=%s: must be host:port, or 0 for none", o.MetricsAddress)
	}
	return nil
}

// restConfig returns the configuration of --kubeconfig or, without the flag, of the cluster that the process runs in
// or, outside of one, the one that kubectl would use.
func (o Options) restConfig() (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	if o.Kubeconfig != "" || errors.Is(err, rest.ErrNotInCluster) {
		files := clientcmd.NewDefaultClientConfigLoadingRules()
		files.ExplicitPath = o.Kubeconfig
		cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(files, nil).ClientConfig()
	}
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no API server is configured: use --kubeconfig or $KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("client configuration: %w", err)
	}
	cfg.QPS, cfg.Burst = o.QPS, o.Burst
	cfg.ContentType = runtime.ContentTypeProtobuf // half the work of JSON, for client and server
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return cfg, nil
}
