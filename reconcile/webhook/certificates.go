package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Certificates makes a CA and a certificate of the program's own, keeps them in a Secret that all replicas share, and
// writes the CA into the configurations that lead to the webhooks. REST, Secret, Hosts and at least one configuration
// have to be set. Each replica does all of it, whether it leads or not: the Secret is changed by conditional updates,
// so the first one wins, and the others follow.
type Certificates struct {
	// REST is for the requests about the Secret and the configurations. It must not be what reconcile.ClientConfig
	// returns with an Elector: a replica that does not lead makes requests, too.
	REST *rest.Config
	// Secret is where the CA and the certificate are. It may be there before, without data, so that the right to create
	// Secrets is not needed.
	Secret types.NamespacedName
	// Hosts are the names and IP addresses that the certificate is for, such as NAME.NAMESPACE.svc for a Service.
	Hosts []string
	// Mutating and Validating are names of MutatingWebhookConfigurations and ValidatingWebhookConfigurations, and CRDs
	// those of CustomResourceDefinitions with a conversion webhook. The caBundle of all their webhooks is written, by
	// server-side apply, and again if it is removed. One that does not exist is waited for.
	Mutating, Validating, CRDs []string
	// FieldManager is the owner of each caBundle. Empty: webhook.
	FieldManager string
	// Lifetimes may be left zero.
	Lifetimes Lifetimes
	// Dial makes the connections by which a replica finds out whether its webhooks can be reached. Nil: that of package
	// net.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// mistakes returns what is wrong with the options.
func (c *Certificates) mistakes() error {
	var errs []error
	mistake := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("Options.Certificates."+format, args...))
	}
	if c.REST == nil {
		mistake("REST is nil")
	}
	if c.Secret.Namespace == "" || c.Secret.Name == "" {
		mistake("Secret is %q: it needs a namespace and a name", c.Secret)
	}
	if len(c.Hosts) == 0 {
		mistake("Hosts is empty")
	}
	if len(c.Mutating)+len(c.Validating)+len(c.CRDs) == 0 {
		mistake("Mutating, Validating and CRDs are empty: no API server would trust the CA")
	}
	if _, err := c.Lifetimes.complete(); err != nil {
		mistake("Lifetimes: %w", err)
	}
	return errors.Join(errs...)
}

// keeper keeps the certificates of one replica up to date.
type keeper struct {
	// Never changed.
	Certificates
	secrets *informer.Resource[*corev1.Secret]
	targets []target

	// For the goroutine of run.
	spread      []byte    // the bundle that all configurations have
	spreadSince time.Time // since when
	reached     bool      // a replica has answered where the configurations lead to
	log         lifecycle.LogLimit

	mu sync.Mutex
	// Guarded by mu.
	leaf    *tls.Certificate // nil before the first one
	problem error            // why an API server cannot reach the webhooks; nil once one could
}

// target is a configuration, and how to read and write the caBundle in it.
type target struct {
	resource *informer.Resource[*unstructured.Unstructured]
	name     string
}

func (t target) String() string { return t.resource.GroupVersionResource().Resource + " " + t.name }

func newKeeper(c Certificates) (*keeper, error) {
	k := &keeper{Certificates: c, problem: errors.New("there is no certificate yet")}
	k.FieldManager = cmp.Or(k.FieldManager, "webhook")
	if k.Dial == nil {
		k.Dial = (&net.Dialer{}).DialContext
	}
	var err error
	if k.Lifetimes, err = c.Lifetimes.complete(); err != nil {
		return nil, err
	}
	secrets, err := informer.NewResource[*corev1.Secret](c.REST, corev1.SchemeGroupVersion.WithResource("secrets"),
		informer.ResourceOptions{})
	if err != nil {
		return nil, err
	}
	k.secrets = secrets.In(c.Secret.Namespace)
	for _, group := range []struct {
		gvr   schema.GroupVersionResource
		names []string
	}{
		{admissions.WithResource("mutatingwebhookconfigurations"), c.Mutating},
		{admissions.WithResource("validatingwebhookconfigurations"), c.Validating},
		{definitions.WithResource("customresourcedefinitions"), c.CRDs},
	} {
		resource, err := informer.NewResource[*unstructured.Unstructured](c.REST, group.gvr, informer.ResourceOptions{})
		if err != nil {
			return nil, err
		}
		for _, name := range group.names {
			k.targets = append(k.targets, target{resource, name})
		}
	}
	return k, nil
}

var (
	admissions  = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	definitions = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
)

// run renews the certificates until ctx ends. It closes first when there is a certificate.
func (k *keeper) run(ctx context.Context, first chan<- struct{}) {
	for failures := 0; ; {
		err := k.sync(ctx)
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		if k.problem != nil { // what fails once the webhooks can be reached does not take that away
			k.problem = err
		}
		served := k.leaf != nil
		k.mu.Unlock()
		if held, ok := k.log.Allow(1); err != nil && ok {
			klog.FromContext(ctx).Error(err, "The certificates of webhooks are not in order", "notLogged", held)
		}
		if served && first != nil {
			close(first)
			first = nil
		}
		pause := k.Lifetimes.pause()
		if failures++; err == nil {
			failures = 0
		} else {
			pause = min(pause, lifecycle.Doubled(time.Second, failures-1, time.Minute))
		}
		if !lifecycle.Sleep(ctx, pause) {
			return
		}
	}
}

// sync reads the Secret, renews what is due, uses the certificate, and writes the CA into the configurations.
func (k *keeper) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	a, err := k.renewed(ctx)
	if err != nil {
		return fmt.Errorf("secret %s: %w", k.Secret, err)
	}
	leaf, err := tls.X509KeyPair(a.leaf.cert, a.leaf.key)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.leaf = &leaf
	k.mu.Unlock()
	var errs []error
	addresses := map[string]string{} // and the name in the certificate
	for _, t := range k.targets {
		if err := k.entrust(ctx, t, a.bundle(), addresses); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t, err))
		}
	}
	switch bundle := a.bundle(); {
	case len(errs) > 0:
		k.spread = nil
	case !bytes.Equal(bundle, k.spread):
		k.spread, k.spreadSince = bundle, time.Now()
	}
	if len(errs) == 0 && !k.reached {
		errs = append(errs, k.reach(ctx, a.bundle(), addresses))
		k.reached = errs[0] == nil
	}
	return errors.Join(errs...)
}

// renewed returns the authority of the Secret, after it has renewed what is due. When another replica is faster, what
// that one has made is read at the next try.
func (k *keeper) renewed(ctx context.Context) (authority, error) {
	for {
		secret, err := k.secrets.Get(ctx, k.Secret.Name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return authority{}, err
		}
		var is authority
		if !missing {
			if is, err = parseAuthority(secret.Data); err != nil {
				return is, fmt.Errorf("%w; delete the Secret to have new certificates made", err)
			}
		}
		var spread time.Duration
		if k.spread != nil && bytes.Equal(k.spread, is.bundle()) {
			spread = time.Since(k.spreadSince)
		}
		next, err := is.renew(k.Hosts, k.Lifetimes, spread, time.Now())
		if err != nil {
			return is, err
		}
		if reflect.DeepEqual(next.data(), is.data()) {
			return is, nil
		}
		if missing {
			_, err = k.secrets.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: k.Secret.Namespace, Name: k.Secret.Name},
				Type:       corev1.SecretTypeOpaque, Data: next.data(),
			}, metav1.CreateOptions{FieldManager: k.FieldManager})
		} else {
			secret.Data = next.data()
			_, err = k.secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: k.FieldManager})
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return next, err
		}
	}
}

// entrust writes the bundle into a configuration, unless it is there, and adds the addresses that it leads to.
func (k *keeper) entrust(ctx context.Context, t target, bundle []byte, addresses map[string]string) error {
	is, err := t.resource.Get(ctx, t.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	var read struct {
		Webhooks []struct {
			Name         string       `json:"name"`
			ClientConfig clientConfig `json:"clientConfig"`
		} `json:"webhooks"`
		Spec struct {
			Conversion struct {
				Webhook *struct {
					ClientConfig clientConfig `json:"clientConfig"`
				} `json:"webhook"`
			} `json:"conversion"`
		} `json:"spec"`
	}
	data, err := is.MarshalJSON()
	if err != nil {
		return err
	}
	if err := decode(data, &read); err != nil {
		return err
	}
	same, content := true, map[string]any{"apiVersion": is.GetAPIVersion(), "kind": is.GetKind(),
		"metadata": map[string]any{"name": t.name}}
	note := func(c clientConfig) map[string]any {
		same = same && bytes.Equal(c.CABundle, bundle)
		if address, host := c.address(); address != "" {
			addresses[address] = host
		}
		return map[string]any{"clientConfig": map[string]any{"caBundle": bundle}}
	}
	var webhooks []any
	for _, hook := range read.Webhooks {
		entry := note(hook.ClientConfig)
		entry["name"] = hook.Name
		webhooks = append(webhooks, entry)
	}
	switch {
	case len(webhooks) > 0:
		content["webhooks"] = webhooks
	case read.Spec.Conversion.Webhook != nil:
		content["spec"] = map[string]any{"conversion": map[string]any{
			"strategy": "Webhook", "webhook": note(read.Spec.Conversion.Webhook.ClientConfig)}}
	default:
		return errors.New("it has no webhook")
	}
	if same {
		return nil
	}
	apply, err := json.Marshal(content)
	if err != nil {
		return err
	}
	_, err = t.resource.Patch(ctx, t.name, types.ApplyPatchType, apply, metav1.PatchOptions{
		FieldManager: k.FieldManager, Force: new(true)})
	return err
}

// clientConfig is where a webhook is, in all three kinds of configurations.
type clientConfig struct {
	CABundle []byte  `json:"caBundle"`
	URL      *string `json:"url"`
	Service  *struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Port      *int32 `json:"port"`
	} `json:"service"`
}

// address is where the API server connects to, and the name that it asks for; empty if there is none.
func (c clientConfig) address() (address, host string) {
	if c.Service != nil {
		port := int32(443)
		if c.Service.Port != nil {
			port = *c.Service.Port
		}
		host = c.Service.Name + "." + c.Service.Namespace + ".svc"
		return net.JoinHostPort(host, strconv.Itoa(int(port))), host
	}
	if c.URL == nil {
		return "", ""
	}
	u, err := url.Parse(*c.URL)
	if err != nil || u.Host == "" {
		return "", ""
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")), u.Hostname()
}

// reach connects to each address as an API server would. It does not see what only keeps the API server out, such as a
// NetworkPolicy.
func (k *keeper) reach(ctx context.Context, bundle []byte, addresses map[string]string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, address := range slices.Sorted(maps.Keys(addresses)) {
		conn, err := k.Dial(ctx, "tcp", address)
		if err == nil {
			client := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: addresses[address],
				MinVersion: tls.VersionTLS12})
			err = client.HandshakeContext(ctx)
			conn.Close()
		}
		if err != nil {
			return fmt.Errorf("%s cannot be reached (its Service needs publishNotReadyAddresses: true): %w", address,
				err)
		}
	}
	return nil
}

// certificate is for handshakes.
func (k *keeper) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leaf == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return k.leaf, nil
}

// ready says why an API server cannot reach the webhooks, as far as is known. Once it could, only a certificate that
// has ended is a reason.
func (k *keeper) ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.problem != nil {
		return k.problem
	}
	if now := time.Now(); now.After(k.leaf.Leaf.NotAfter) {
		return fmt.Errorf("the certificate ended at %s", k.leaf.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}
