package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// metricsService is the Service that the APIService of metrics.k8s.io names.
const metricsService = "standin-metrics"

// serveMetrics serves metrics.k8s.io for the pods until ctx ends. The API server is the only client that it has in
// mind: that authenticates and authorizes each request before it passes it on. So this server, which listens on the
// loopback interface, does neither.
func serveMetrics(ctx context.Context, client kubernetes.Interface, p *pods) {
	for ctx.Err() == nil {
		if err := serveMetricsOnce(ctx, client, p); err != nil {
			complain(ctx, fmt.Errorf("serve metrics.k8s.io: %w", err))
		}
		sleep(ctx, retryAfter)
	}
}

func serveMetricsOnce(ctx context.Context, client kubernetes.Interface, p *pods) error {
	certificate, authority, err := selfSigned(metricsService + "." + metav1.NamespaceSystem + ".svc")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: metricsHandler(ctx, p), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		ReadHeaderTimeout: 10 * time.Second,
	}
	var running sync.WaitGroup
	failed := make(chan error, 1)
	running.Go(func() { failed <- server.ServeTLS(listener, "", "") })
	defer running.Wait()
	defer server.Close()
	for {
		err := register(ctx, client, listener.Addr().(*net.TCPAddr).Port, authority)
		if err == nil {
			break
		}
		complain(ctx, err)
		if sleep(ctx, retryAfter); ctx.Err() != nil {
			return nil
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// selfSigned makes a certificate for a server of this name that is its own authority.
func selfSigned(name string) (certificate tls.Certificate, authority []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return certificate, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// register tells the API server to pass requests for metrics.k8s.io on to this port. The Service is an external name,
// since nothing routes to the addresses of Services here.
func register(ctx context.Context, client kubernetes.Interface, port int, authority []byte) error {
	service, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": metricsService},
		"spec": map[string]any{"type": corev1.ServiceTypeExternalName, "externalName": "localhost"},
	})
	if err != nil {
		return err
	}
	gv := v1beta1.SchemeGroupVersion
	name := gv.Version + "." + gv.Group
	api, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": gv.Group, "version": gv.Version, "caBundle": authority,
			"groupPriorityMinimum": 100, "versionPriority": 100,
			"service": map[string]any{"namespace": metav1.NamespaceSystem, "name": metricsService, "port": port},
		},
	})
	if err != nil {
		return err
	}
	force := true
	_, err = client.CoreV1().Services(metav1.NamespaceSystem).Patch(ctx, metricsService, types.ApplyPatchType, service,
		metav1.PatchOptions{FieldManager: "standin", Force: &force})
	if err == nil {
		err = client.CoreV1().RESTClient().Patch(types.ApplyPatchType).
			AbsPath("/apis/apiregistration.k8s.io/v1/apiservices", name).
			Param("fieldManager", "standin").Param("force", "true").Body(api).Do(ctx).Error()
	}
	if err != nil {
		return fmt.Errorf("register metrics.k8s.io: %w", err)
	}
	return nil
}

// metricsHandler answers what metrics.k8s.io is asked: discovery, and the samples of one pod, of the pods of a
// namespace and of all pods.
func metricsHandler(ctx context.Context, p *pods) http.Handler {
	mux := http.NewServeMux()
	root := "/apis/" + v1beta1.SchemeGroupVersion.String()
	mux.HandleFunc("GET "+root, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
			GroupVersion: v1beta1.SchemeGroupVersion.String(),
			APIResources: []metav1.APIResource{{Name: "pods", SingularName: "pod", Namespaced: true,
				Kind: "PodMetrics", Verbs: metav1.Verbs{"get", "list"}}},
		})
	})
	list := func(w http.ResponseWriter, r *http.Request) {
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		switch {
		case err != nil:
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err)
		case r.URL.Query().Get("fieldSelector") != "" || r.URL.Query().Get("watch") != "":
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest,
				errors.New("the node stand-in has neither field selectors nor watches for metrics.k8s.io"))
		default:
			found := v1beta1.PodMetricsList{Items: p.samples(ctx, r.PathValue("namespace"), selector),
				TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "PodMetricsList"}}
			answer(w, http.StatusOK, found)
		}
	}
	mux.HandleFunc("GET "+root+"/pods", list)
	mux.HandleFunc("GET "+root+"/namespaces/{namespace}/pods", list)
	mux.HandleFunc("GET "+root+"/namespaces/{namespace}/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		for _, sample := range p.samples(ctx, r.PathValue("namespace"), labels.Everything()) {
			if sample.Name == r.PathValue("name") {
				answer(w, http.StatusOK, sample)
				return
			}
		}
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound,
			fmt.Errorf("there is no sample of pod %q", r.PathValue("name")))
	})
	return mux
}

// samples returns those of the pods of a namespace, or of all. A pod with a wrong annotation has none.
func (p *pods) samples(ctx context.Context, namespace string, selector labels.Selector) []v1beta1.PodMetrics {
	now := time.Now()
	found := []v1beta1.PodMetrics{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, pod := range p.known {
		if namespace != "" && key.Namespace != namespace || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		sample, err := sampleOf(pod, now)
		if err != nil {
			complain(ctx, fmt.Errorf("pod %s: %w", key, err))
		}
		if sample != nil {
			found = append(found, *sample)
		}
	}
	return found
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, err error) {
	answer(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: err.Error()})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // fails if the client has gone
}
