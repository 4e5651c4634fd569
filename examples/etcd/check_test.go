package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// soak is set for the long variants.
var soak = os.Getenv("THERMOSTAT_SOAK") != ""

func manifest(size int, version string) string {
	return fmt.Sprintf(`
apiVersion: etcd.example.com/v1
kind: EtcdCluster
metadata: {name: a}
spec: {size: %d, version: %s}
`, size, version)
}

var memberName, etcdID = regexp.MustCompile(`\ba-\d+\b`), regexp.MustCompile(`"(id|clusterID)":"\d+"`)

// anyMember removes numbers: a member that is replaced while it votes has a successor with another name and ID, and an
// EtcdCluster that is made anew has another cluster.
func anyMember(o *unstructured.Unstructured) {
	text, err := o.MarshalJSON()
	if err != nil {
		panic(err)
	}
	text = etcdID.ReplaceAll(memberName.ReplaceAll(text, []byte("a-N")), []byte(`"$1":"N"`))
	if err := o.UnmarshalJSON(text); err != nil {
		panic(err)
	}
}

// TestCheck disturbs the operator at each of its requests, while it makes a cluster of one member. In long runs a
// second member joins it.
func TestCheck(t *testing.T) {
	sc := reconciletest.Scenario{
		Run:     start,
		Server:  serverOptions(t),
		User:    account,
		Beside:  []func(context.Context, *rest.Config) error{kubelet},
		Steps:   reconciletest.ApplyYAML(manifest(1, "3.6.16")),
		Settled: func(s *reconciletest.Server) error { return settled(s, 1, "3.6.16") },
		Mask:    anyMember,
		// A member that has lost its disk is replaced by one with another name.
		Off:    []string{"delete persistentvolumeclaims"},
		Budget: time.Second,
	}
	if soak {
		sc.Budget, sc.Seed = 3*time.Minute, uint64(time.Now().UnixNano())
		sc.Steps = append(sc.Steps, reconciletest.ApplyYAML(manifest(2, "3.6.16"))...)
		sc.Settled = func(s *reconciletest.Server) error { return settled(s, 2, "3.6.16") }
	}
	reconciletest.Check(t, sc)
}
