package check

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/pkg/controlplane/controller/apiserverleasegc"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
	"k8s.io/kubernetes/pkg/controlplane/controller/systemnamespaces"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const system = metav1.NamespaceSystem

// leaseGC deletes the Leases of API servers that are gone. It looks each minute, and not each hour, as the integration
// tests of Kubernetes may.
func leaseGC(ctx context.Context, client kubernetes.Interface) error {
	apiserverleasegc.NewAPIServerLeaseGC(client, time.Minute, system,
		"apiserver.kubernetes.io/identity=kube-apiserver").RunWithContext(ctx)
	return nil
}

// heartbeat is a step in which an API server renews its Lease for the last time, for a minute.
func heartbeat(name string) reconciletest.Step {
	return reconciletest.StepFunc("the last heartbeat of "+name, func(ctx context.Context, cfg *rest.Config) error {
		seconds, now := int32(60), metav1.NowMicro()
		client := kubernetes.NewForConfigOrDie(cfg).CoordinationV1().Leases(system)
		lease, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			_, err = client.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name,
				Labels: map[string]string{"apiserver.kubernetes.io/identity": "kube-apiserver"}},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
			}, metav1.CreateOptions{})
			return err
		}
		lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &seconds, &now
		_, err = client.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
}

// TestAPIServerLeases: of two API servers that are gone the Leases go, and not those of a third one and of another
// program.
func TestAPIServerLeases(t *testing.T) {
	of := func(name, identity, renewed string, seconds int) string {
		return fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: %s, namespace: kube-system, labels: {apiserver.kubernetes.io/identity: %s}}
spec: {holderIdentity: %s, renewTime: "%s", leaseDurationSeconds: %d}
---
`, name, identity, name, renewed, seconds)
	}
	const before, start = "1999-12-31T12:00:00.000000Z", "2000-01-01T00:00:00.000000Z" // when each run begins
	check(t, leaseGC, reconciletest.Scenario{
		Server: reconciletest.Options{Namespaces: []string{"default", system}},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(of("apiserver-old", "kube-apiserver", before, 3600) +
			of("apiserver-up", "kube-apiserver", start, 10_000_000) + of("other", "other", before, 3600))[0],
			heartbeat("apiserver-ends"), reconciletest.Wait(5 * time.Minute)},
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*coordinationv1.Lease](s, "leases", system, "apiserver-up")
			_, err2 := there[*coordinationv1.Lease](s, "leases", system, "other")
			return errors.Join(err, err2, gone[*coordinationv1.Lease](s, "leases", system, "apiserver-old"),
				gone[*coordinationv1.Lease](s, "leases", system, "apiserver-ends"))
		},
	})
}

// systemNamespaces makes the namespaces of the system.
func systemNamespaces(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	c := systemnamespaces.NewController([]string{system, metav1.NamespacePublic, corev1.NamespaceNodeLease}, client,
		factory.Core().V1().Namespaces())
	factory.Start(ctx.Done())
	c.Run(ctx.Done())
	factory.Shutdown()
	return nil
}

// TestSystemNamespaces: an administrator labels one of them, and deletes another one.
func TestSystemNamespaces(t *testing.T) {
	check(t, systemNamespaces, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(`
apiVersion: v1
kind: Namespace
metadata: {name: kube-public, labels: {team: all}}
`), reconciletest.Delete("namespaces", "", corev1.NamespaceNodeLease), reconciletest.Wait(3*time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			for _, name := range []string{system, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
				n, err := there[*corev1.Namespace](s, "namespaces", "", name)
				if err != nil {
					return err
				}
				if n.DeletionTimestamp != nil {
					return fmt.Errorf("%s is about to go", name)
				}
				if name == metav1.NamespacePublic && n.Labels["team"] != "all" {
					return fmt.Errorf("%s has lost its label", name)
				}
			}
			return nil
		},
	})
}

// serviceRanges makes the ServiceCIDR of a cluster with both IP families.
func serviceRanges(ctx context.Context, client kubernetes.Interface) error {
	_, first, err := net.ParseCIDR("10.96.0.0/12")
	if err != nil {
		return err
	}
	_, second, err := net.ParseCIDR("fd00:10:96::/112")
	if err != nil {
		return err
	}
	defaultservicecidr.NewController(*first, *second, client).Start(ctx)
	<-ctx.Done()
	return nil
}

// rangeOf is a ServiceCIDR with one range.
func rangeOf(name, cidr string) string {
	return fmt.Sprintf(`
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: %s}
spec: {cidrs: [%s]}
---
`, name, cidr)
}

// TestDefaultServiceCIDR: the cluster has had one IP family before. Somebody adds a range, and deletes the default one.
func TestDefaultServiceCIDR(t *testing.T) {
	earlier := filepath.Join(t.TempDir(), "earlier.yaml")
	if err := os.WriteFile(earlier, []byte(rangeOf("kubernetes", "10.96.0.0/12")), 0o644); err != nil {
		t.Fatal(err)
	}
	check(t, serviceRanges, reconciletest.Scenario{
		Server: reconciletest.Options{Manifests: []string{earlier}},
		Steps: append(reconciletest.ApplyYAML(rangeOf("more", "10.200.0.0/16")),
			reconciletest.Delete("servicecidrs", "", "kubernetes"), reconciletest.Wait(time.Minute)),
		Settled: func(s *reconciletest.Server) error {
			r, err := there[*networkingv1.ServiceCIDR](s, "servicecidrs", "", "kubernetes")
			more, err2 := there[*networkingv1.ServiceCIDR](s, "servicecidrs", "", "more")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return errors.Join(want("ranges", r.Spec.CIDRs, []string{"10.96.0.0/12", "fd00:10:96::/112"}),
				want("it is ready", meta.IsStatusConditionTrue(r.Status.Conditions,
					networkingv1.ServiceCIDRConditionReady), true),
				want("conditions of the other one", len(more.Status.Conditions), 0))
		},
	})
}

// authority makes the certificate of an authority, as PEM.
func authority(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded(made))
}

func encoded(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: c.Raw})
}

// trust publishes by whom the clients of an API server are known.
func trust(clients, front string) runs {
	return func(ctx context.Context, client kubernetes.Interface) error {
		of, err := dynamiccertificates.NewStaticCAContent("clients", []byte(clients))
		if err != nil {
			return err
		}
		by, err := dynamiccertificates.NewStaticCAContent("front", []byte(front))
		if err != nil {
			return err
		}
		strings := func(all ...string) headerrequest.StringSliceProvider { return headerrequest.StaticStringSlice(all) }
		c := clusterauthenticationtrust.NewClusterAuthenticationTrustController(
			clusterauthenticationtrust.ClusterAuthenticationInfo{ClientCA: of, RequestHeaderCA: by,
				RequestHeaderUsernameHeaders:     strings("X-Remote-User"),
				RequestHeaderUIDHeaders:          strings("X-Remote-Uid"),
				RequestHeaderGroupHeaders:        strings("X-Remote-Group"),
				RequestHeaderExtraHeaderPrefixes: strings("X-Remote-Extra-"),
				RequestHeaderAllowedNames:        strings("front-proxy-client")}, client)
		c.Run(ctx, 1)
		return nil
	}
}

// TestClusterAuthenticationTrust: an API server that knows its clients by another authority has published that, and
// does so again after somebody has deleted all of it.
func TestClusterAuthenticationTrust(t *testing.T) {
	clients, front, other := authority(t, "clients"), authority(t, "front"), authority(t, "other")
	const name = "extension-apiserver-authentication"
	of := func(names string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: kube-system}
data: {client-ca-file: %q, requestheader-allowed-names: '%s'}
`, name, other, names)
	}
	steps := reconciletest.ApplyYAML(of(`["one"]`), of(`["one","two"]`))
	check(t, trust(clients, front), reconciletest.Scenario{
		Server: reconciletest.Options{Namespaces: []string{"default", system}},
		Steps:  []reconciletest.Step{steps[0], reconciletest.Delete("configmaps", system, name), steps[1]},
		Settled: func(s *reconciletest.Server) error {
			m, err := there[*corev1.ConfigMap](s, "configmaps", system, name)
			if err != nil {
				return err
			}
			return errors.Join(want("authorities of clients", m.Data["client-ca-file"], other+clients),
				want("those of front proxies", m.Data["requestheader-client-ca-file"], front),
				want("their names", m.Data["requestheader-allowed-names"], `["one","two","front-proxy-client"]`))
		},
	})
}

// fairness is the controller that reads how requests are queued. It reports whether a FlowSchema has a priority level.
func fairness(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	c := flowcontrol.New(factory, client.FlowcontrolV1(), 600)
	factory.Start(ctx.Done())
	err := c.Run(ctx.Done())
	factory.Shutdown()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// TestPriorityAndFairness: the priority level of one FlowSchema comes later, and that of another one goes.
func TestPriorityAndFairness(t *testing.T) {
	schema := func(name string, precedence int) string {
		return fmt.Sprintf(`
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: %[1]s}
spec:
  priorityLevelConfiguration: {name: %[1]s}
  matchingPrecedence: %[2]d
  distinguisherMethod: {type: ByUser}
  rules:
  - subjects: [{kind: ServiceAccount, serviceAccount: {name: %[1]s, namespace: default}}]
    resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: ["*"], clusterScope: true}]
---
`, name, precedence)
	}
	level := func(name string, shares int) string {
		return fmt.Sprintf(`
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: %s}
spec: {type: Limited, limited: {nominalConcurrencyShares: %d, limitResponse: {type: Reject}}}
---
`, name, shares)
	}
	check(t, fairness, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(level("old", 10)+level("kept", 10)+schema("mine", 500)+
			schema("old", 600)+schema("kept", 700), level("mine", 20)+level("kept", 30)),
			reconciletest.Delete("prioritylevelconfigurations", "", "old")),
		Settled: func(s *reconciletest.Server) error {
			for name, should := range map[string]flowcontrolv1.ConditionStatus{"mine": flowcontrolv1.ConditionFalse,
				"old": flowcontrolv1.ConditionTrue, "kept": flowcontrolv1.ConditionFalse} {
				f, err := there[*flowcontrolv1.FlowSchema](s, "flowschemas", "", name)
				if err != nil {
					return err
				}
				if len(f.Status.Conditions) != 1 {
					return fmt.Errorf("%s has %d conditions", name, len(f.Status.Conditions))
				}
				c := f.Status.Conditions[0]
				if err := errors.Join(want("condition of "+name, c.Type, flowcontrolv1.FlowSchemaConditionDangling),
					want(name+" has no level", c.Status, should)); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
