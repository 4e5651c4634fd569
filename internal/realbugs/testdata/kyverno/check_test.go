// Package check runs the controller of Kyverno that keeps the certificates of its webhooks, as its main does, with the
// defaults of the flags but for the algorithm of the keys: those of RSA take long to make. Leader election is left out.
package check

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kyverno/kyverno/pkg/config"
	"github.com/kyverno/kyverno/pkg/controllers/certmanager"
	"github.com/kyverno/kyverno/pkg/informers"
	"github.com/kyverno/kyverno/pkg/tls"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

const authority, pair = "kyverno-svc.kyverno.svc.kyverno-tls-ca", "kyverno-svc.kyverno.svc.kyverno-tls-pair"

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func run(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	const resync = 15 * time.Minute
	namespace, service := config.KyvernoNamespace(), config.KyvernoServiceName()
	ca := informers.NewSecretInformer(client, namespace, authority, resync)
	served := informers.NewSecretInformer(client, namespace, pair, resync)
	if !informers.StartInformersAndWaitForCacheSync(ctx, logr.Discard(), ca, served) {
		return errors.New("the caches have not synced")
	}
	renewer := tls.NewCertRenewer(client.CoreV1().Secrets(namespace), tls.CertRenewalInterval, tls.CAValidityDuration,
		tls.TLSValidityDuration, 15*24*time.Hour, "", service, config.DnsNames(service, namespace), namespace,
		authority, pair, tls.KeyAlgorithms["ECDSA"])
	certmanager.NewController(ca, served, renewer, authority, pair, namespace).Run(ctx, certmanager.Workers)
	return nil
}

// certificate reads that of a Secret.
func certificate(s *reconciletest.Server, name string) (*x509.Certificate, error) {
	secret, err := there[*corev1.Secret](s, "secrets", "kyverno", name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	if block == nil {
		return nil, errors.New(name + " has no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// TestCertificates: there is always a certificate that is signed by the authority. Nothing is switched off; no schedule
// begins after a minute.
func TestCertificates(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run:    run,
		Server: reconciletest.Options{Kinds: builtin.Kinds(), Namespaces: []string{"default", "kyverno"}},
		Limit:  time.Minute,
		Steps: []reconciletest.Step{reconciletest.Wait(time.Minute), reconciletest.Delete("secrets", "kyverno", pair),
			reconciletest.Delete("secrets", "kyverno", authority), reconciletest.Wait(time.Hour)},
		Settled: func(s *reconciletest.Server) error {
			ca, err := certificate(s, authority)
			served, err2 := certificate(s, pair)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			return served.CheckSignatureFrom(ca)
		},
	})
}
