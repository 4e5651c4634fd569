package check

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	internalinformers "github.com/cert-manager/cert-manager/internal/informers"
	apiutil "github.com/cert-manager/cert-manager/pkg/api/util"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	clientset "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned"
	informers "github.com/cert-manager/cert-manager/pkg/client/informers/externalversions"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/metrics"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// run is one of the controllers that main starts: the one of the keys of Certificates that are being issued.
func run(ctx context.Context, cfg *rest.Config) error {
	client, core := clientset.NewForConfigOrDie(cfg), kubernetes.NewForConfigOrDie(cfg)
	c := &controller.Context{RootContext: ctx, Client: core, CMClient: client, Clock: clock.RealClock{},
		Recorder: record.NewFakeRecorder(10_000), FieldManager: "cert-manager",
		Metrics:                   metrics.New(logr.Discard(), clock.RealClock{}),
		KubeSharedInformerFactory: internalinformers.NewBaseKubeInformerFactory(core, 10*time.Hour, ""),
		SharedInformerFactory:     informers.NewSharedInformerFactory(client, 10*time.Hour)}
	keys, queue, synced, err := keymanager.NewController(logr.Discard(), c)
	if err != nil {
		return err
	}
	c.SharedInformerFactory.Start(ctx.Done())
	c.KubeSharedInformerFactory.Start(ctx.Done())
	run := controller.NewController(keymanager.ControllerName, c.Metrics, keys.ProcessItem, synced, nil, queue)
	err = run.Run(5, ctx)
	c.SharedInformerFactory.Shutdown()
	c.KubeSharedInformerFactory.Shutdown()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// trigger is in place of the controller that says which Certificates are to be issued: all, all the time.
func trigger(ctx context.Context, cfg *rest.Config) error {
	client := clientset.NewForConfigOrDie(cfg).CertmanagerV1().Certificates("default")
	for {
		all, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range all.Items {
			crt := &all.Items[i]
			if apiutil.GetCertificateCondition(crt, cmapi.CertificateConditionIssuing) == nil {
				apiutil.SetCertificateCondition(crt, crt.Generation, cmapi.CertificateConditionIssuing,
					cmmeta.ConditionTrue, "Test", "all are issued")
				_, _ = client.UpdateStatus(ctx, crt, metav1.UpdateOptions{}) // the next round tries again
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

const certificate = `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: default}
spec:
  secretName: web
  dnsNames: [example.com]
  privateKey: {algorithm: ECDSA, rotationPolicy: Always}
  issuerRef: {name: issuer}
`

// keeps says that the Secret that a Certificate names is not deleted. A second incarnation may do so: after a start on
// an old cache it takes the Certificate for one that is not being issued.
func keeps(w reconciletest.Write, s *reconciletest.Server) error {
	crt, ok := reconciletest.Get[*unstructured.Unstructured](s, "certificates.cert-manager.io", "default", "web")
	if !ok || w.Incarnation > 1 || w.Resource.Resource != "secrets" || w.New != nil || w.Old == nil {
		return nil
	}
	named, _, _ := unstructured.NestedString(crt.Object, "status", "nextPrivateKeySecretName")
	if w.Old.GetName() == named && metav1.IsControlledBy(w.Old, crt) {
		return fmt.Errorf("the Secret %s is deleted, and the Certificate names it as its next key", named)
	}
	return nil
}

func TestKeys(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run:    run,
		Beside: []func(context.Context, *rest.Config) error{trigger},
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds()},
		Steps:  reconciletest.ApplyYAML(certificate),
		Always: keeps,
		Mask: func(o *unstructured.Unstructured) { // keys are random
			if o.GetKind() == "Secret" {
				delete(o.Object, "data")
			}
		},
	})
}
