package story

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	leasev1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	autoscalingv2 "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Client talks to the API server without this library, since the demo checks the library. It has the four groups that
// the demo needs: compiling client-go's whole clientset takes longer than the demo.
type Client struct {
	Apps   appsv1.AppsV1Interface
	Core   corev1.CoreV1Interface
	HPAs   autoscalingv2.AutoscalingV2Interface
	Leases coordinationv1.CoordinationV1Interface
}

// NewClient makes the clients of a configuration.
func NewClient(cfg *rest.Config) (*Client, error) {
	apps, err := appsv1.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	core, err := corev1.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	hpas, err := autoscalingv2.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	leases, err := coordinationv1.NewForConfig(cfg)
	return &Client{apps, core, hpas, leases}, err
}

const (
	app     = "web"
	manager = "demo" // of the fields that the demo applies
)

// Manifest is the Deployment of the demo.
//
//go:embed web.yaml
var Manifest []byte

// web returns the Deployment with an image.
func web(image string) (*appsv1ac.DeploymentApplyConfiguration, error) {
	var config appsv1ac.DeploymentApplyConfiguration
	if err := yaml.UnmarshalStrict(Manifest, &config); err != nil {
		return nil, fmt.Errorf("web.yaml: %w", err)
	}
	config.Spec.Template.Spec.Containers[0].Image = &image
	return &config, nil
}

const (
	timeout = 90 * time.Second
	// prompt is how long something takes at most that waits for nothing, also on a busy machine. No controller looks by
	// itself as often as that.
	prompt   = 20 * time.Second
	pollTime = 40 * time.Millisecond
)

// AwaitLeaders waits until each lease of the stage has a holder that is one to wait for, and returns the holders. Of a
// lease with a table those are all that share the work, with a space between. Without a function any will do.
func AwaitLeaders(ctx context.Context, client *Client, s interface {
	Leases() []types.NamespacedName
	Running(context.Context) error
}, waitsFor func(i int, holder string) bool) (holders []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for i, lease := range s.Leases() {
		holder := ""
		for {
			l, err := client.Leases.Leases(lease.Namespace).Get(ctx, lease.Name, metav1.GetOptions{})
			if err == nil {
				holder = holderOf(l)
				if holder != "" && (waitsFor == nil || waitsFor(i, holder)) {
					holders = append(holders, holder)
					break
				}
			}
			if err := s.Running(ctx); err != nil {
				return nil, err
			}
			if sleep(ctx) != nil {
				return nil, fmt.Errorf("after %s the lease %s is held by %q, and others are waited for", timeout, lease,
					holder)
			}
		}
	}
	return holders, nil
}

// tableAnnotation has the table of replicas that share the work, behind its sum.
const tableAnnotation = "thermostat-go.github.io/shard-table"

// holderOf returns who holds a lease, or has slices by the table in it: "" if nobody.
func holderOf(l *leasev1.Lease) string {
	text, shared := l.Annotations[tableAnnotation]
	if !shared && l.Spec.HolderIdentity != nil {
		return *l.Spec.HolderIdentity
	}
	_, text, _ = strings.Cut(text, " ")
	var table struct {
		Members []struct {
			Number int
			Seat   string
		}
		Owners []int
	}
	if json.Unmarshal([]byte(text), &table) != nil {
		return ""
	}
	var sharing []string
	for _, m := range table.Members {
		if slices.Contains(table.Owners, m.Number) {
			sharing = append(sharing, m.Seat)
		}
	}
	slices.Sort(sharing)
	return strings.Join(sharing, " ")
}

// sleep waits until it is time to look again.
func sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pollTime):
		return nil
	}
}
