package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/internal/network"
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
	for _, host := range c.Hosts {
		wrong := validation.IsDNS1123Subdomain(host)
		if strings.HasPrefix(host, "*") {
			wrong = validation.IsWildcardDNS1123Subdomain(host)
		}
		if net.ParseIP(host) == nil && len(wrong) > 0 {
			mistake("Hosts has %q, which is neither the name of a host nor an IP address: %s", host, wrong[0])
		}
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
	spread      []byte    // the bundle that all configurations had at each look since spreadSince; nil: they had not
	spreadSince time.Time // when they were first seen with it
	log         lifecycle.LogLimit

	mu sync.Mutex
	// Guarded by mu.
	leaf      *tls.Certificate // nil before the first one
	entrusted bool             // all configurations have had the CA of leaf once
	answered  bool             // something has answered where the configurations lead to
	problem   error            // of the last look
}

func newKeeper(c Certificates) (*keeper, error) {
	k := &keeper{Certificates: c, problem: errNoCertificate}
	k.FieldManager = cmp.Or(k.FieldManager, "webhook")
	if k.Dial == nil {
		k.Dial = network.Dial
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

// errNoCertificate is why nothing is served at the beginning.
var errNoCertificate = errors.New("there is no certificate yet")

// run renews the certificates until ctx ends. It closes first when there is a certificate.
func (k *keeper) run(ctx context.Context, first chan<- struct{}) {
	for failures := 0; ; {
		err := k.sync(ctx)
		if ctx.Err() != nil {
			return
		}
		k.mu.Lock()
		k.problem = err
		served := k.leaf != nil
		k.mu.Unlock()
		if dropped, ok := k.log.Allow(1); err != nil && ok {
			klog.FromContext(ctx).Error(err, "The certificates of webhooks are not in order", "notLogged", dropped)
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

// sync renews the content of the Secret if that is due, uses its certificate, and writes its CA into the
// configurations. It reads the configurations first, then the Secret, and changes configurations only as it has read
// them: so a replica that is slow never replaces a CA by an older one. When a newer CA had been written before the
// configuration was read, the Secret that is read afterwards has it as well; and when it was written later, the
// configuration is no longer as it was.
func (k *keeper) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	all, err := k.configurations(ctx)
	a, err2 := k.renewed(ctx, all, err == nil)
	if err2 != nil {
		return errors.Join(err, fmt.Errorf("secret %s: %w", k.Secret, err2))
	}
	leaf, err2 := tls.X509KeyPair(a.leaf.cert, a.leaf.key)
	if err2 != nil {
		return errors.Join(err, err2)
	}
	k.mu.Lock()
	k.leaf = &leaf
	answered := k.answered
	k.mu.Unlock()
	for _, c := range all {
		if !c.has(a.bundle()) {
			if err2 := c.entrust(ctx, a.bundle(), k.FieldManager); err2 != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", c.target, err2))
			}
		}
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.entrusted = true
	k.mu.Unlock()
	if answered {
		return nil
	}
	err = k.reach(ctx, a.bundle(), all)
	k.mu.Lock()
	k.answered = err == nil
	k.mu.Unlock()
	return err
}

// renewed returns the authority of the Secret, after it has renewed what is due. When another replica is faster, what
// that one has made is read at the next try. complete: all configurations could be read, as they are given.
func (k *keeper) renewed(ctx context.Context, all []configuration, complete bool) (authority, error) {
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
		now := time.Now()
		next, err := is.renew(k.Hosts, k.Lifetimes, k.spreadFor(is.bundle(), all, complete, now), now)
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

// spreadFor is for how long all configurations have been seen with a bundle.
func (k *keeper) spreadFor(bundle []byte, all []configuration, complete bool, now time.Time) time.Duration {
	lacks := func(c configuration) bool { return !c.has(bundle) }
	switch {
	case !complete || slices.ContainsFunc(all, lacks):
		k.spread = nil
		return 0
	case !bytes.Equal(bundle, k.spread):
		k.spread, k.spreadSince = bundle, now
	}
	return now.Sub(k.spreadSince)
}

// configurations reads all targets. It returns those that could be read, beside an error for each other one.
func (k *keeper) configurations(ctx context.Context) (all []configuration, err error) {
	for _, t := range k.targets {
		c, err2 := t.read(ctx)
		if err2 != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", t, err2))
			continue
		}
		all = append(all, c)
	}
	return all, err
}

// reach connects to each address that configurations lead to, as an API server would. It does not see what only keeps
// the API server out, such as a NetworkPolicy.
func (k *keeper) reach(ctx context.Context, bundle []byte, all []configuration) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	names := map[string]string{} // by addresses: what is to be in the certificate
	for _, c := range all {
		for _, client := range c.clients {
			if address, host := client.address(); address != "" {
				names[address] = host
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, address := range slices.Sorted(maps.Keys(names)) {
		conn, err := k.Dial(ctx, "tcp", address)
		if err == nil {
			client := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: names[address],
				MinVersion: tls.VersionTLS12})
			err = client.HandshakeContext(ctx)
			conn.Close()
		}
		if err != nil {
			return fmt.Errorf("%s, where configurations lead to, cannot be reached: %w", address, err)
		}
	}
	return nil
}

// certificate is for handshakes.
func (k *keeper) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leaf == nil {
		return nil, errNoCertificate
	}
	return k.leaf, nil
}

// callable says why an API server would not accept the certificate, as far as is known. Once it would, what fails later
// does not change that.
func (k *keeper) callable() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leaf != nil && k.entrusted {
		return nil
	}
	return cmp.Or(k.problem, errNoCertificate)
}

// reachable says why nothing has answered where the configurations lead to; nil once something has.
func (k *keeper) reachable() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answered {
		return nil
	}
	return cmp.Or(k.problem, errors.New("the webhooks have not been reached yet"))
}
