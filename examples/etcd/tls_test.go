package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/certs"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// createTLS makes an EtcdCluster of three members whose certificates live for some time.
func (w *world) createTLS(ca, leaf, clients time.Duration) {
	_, err := w.clusters.Create(w.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1.EtcdClusterSpec{Size: 3, Version: "3.6.16", TLS: &v1.TLS{CASeconds: int64(ca / time.Second),
			CertificateSeconds: int64(leaf / time.Second), ClientSeconds: int64(clients / time.Second)}}},
		metav1.CreateOptions{})
	require.NoError(w, err)
	w.settles(3, "3.6.16")
}

// secret returns a Secret, or nil.
func (w *world) secret(name string) *corev1.Secret {
	secret, _ := reconciletest.Get[*corev1.Secret](w.server, "secrets", "default", name)
	return secret
}

// rotated waits up to a day until a CA signs alone, and the members are settled. Meanwhile a quorum must answer.
func (w *world) rotated(number int32) {
	w.Helper()
	for range 24 * 60 * 12 {
		now := w.status()
		available, _ := objects.FindCondition(now.Conditions, v1.Available)
		require.Equal(w, metav1.ConditionTrue, available.Status, available.Message)
		if now.TLS != nil && now.TLS.CA == number && now.TLS.Step == string(certs.Steady) &&
			settled(w.server, 3, "3.6.16") == nil {
			return
		}
		time.Sleep(5 * time.Second)
	}
	w.Fatalf("CA %d does not sign: %+v", number, w.status())
}

// mayDistrust allows members not to accept each other.
func (w *world) mayDistrust() {
	etcd.now.lock.Lock()
	defer etcd.now.lock.Unlock()
	for _, c := range etcd.now.clusters {
		c.distrust = true
	}
}

const (
	fiveYears   = 5 * 365 * 24 * time.Hour
	ninetyDays  = 90 * 24 * time.Hour
	clientsRead = 10 * time.Minute
)

// TestTLS has members that let in only whom they trust, at each moment: the fake of etcd notes all others.
func TestTLS(t *testing.T) {
	for what, test := range map[string]func(w *world){
		"three members": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, 0)
			w.is(v1.Secured, string(certs.Steady))
			now := w.status().TLS
			require.EqualValues(w, 1, now.CA)
			require.WithinDuration(w, time.Now().Add(fiveYears), now.CAEnds.Time, time.Hour)
			require.WithinDuration(w, time.Now().Add(ninetyDays), now.CertificatesEnd.Time, time.Hour)
			for _, name := range []string{"a-ca", "a-client", "a-1", "a-2", "a-3"} {
				require.NotNil(w, w.secret(name), name)
			}
			require.NotContains(w, w.secret("a-client").Data, certs.DialKey)
		},
		"the Secrets of members come and go with them": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, 0)
			require.NoError(w, w.patch(`{"spec":{"size":5}}`))
			w.settles(5, "3.6.16")
			require.NotNil(w, w.secret("a-5"))
			require.NoError(w, w.patch(`{"spec":{"size":3}}`))
			w.settles(3, "3.6.16")
			time.Sleep(time.Minute)
			require.Len(w, reconciletest.List[*corev1.Secret](w.server, "secrets", "default"), 5)
		},
		"a Secret that is deleted comes back": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, 0)
			pods := w.names()
			for _, name := range []string{"a-2", "a-client"} {
				w.deleteSecret(name)
				time.Sleep(time.Minute)
				require.NotNil(w, w.secret(name), name)
			}
			require.Equal(w, pods, w.names())
		},
		"a Secret of somebody else is in the way": func(w *world) {
			_, err := clientOf[*corev1.Secret](w.T, w.server, secrets).Create(w.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "a-client"}}, metav1.CreateOptions{})
			require.NoError(w, err)
			_, err = w.clusters.Create(w.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Spec: v1.EtcdClusterSpec{Size: 3, Version: "3.6.16", TLS: &v1.TLS{}}}, metav1.CreateOptions{})
			require.NoError(w, err)
			time.Sleep(time.Minute)
			w.is(v1.Progressing, v1.ReasonNameTaken)
			require.Empty(w, w.secret("a-client").Data)
			w.deleteSecret("a-client")
			w.settles(3, "3.6.16")
		},
		"certificates are renewed, and no pod starts again": func(w *world) {
			w.createTLS(fiveYears, 2*time.Hour, 0)
			pods, before := w.names(), w.status().TLS.CertificatesEnd
			time.Sleep(3 * time.Hour)
			w.is(v1.Secured, string(certs.Steady))
			require.Equal(w, pods, w.names())
			require.True(w, before.Time.Before(time.Now()))
			require.True(w, w.status().TLS.CertificatesEnd.After(time.Now()))
		},
		"a node that does not bring new certificates to its pod": func(w *world) {
			w.createTLS(fiveYears, 2*time.Hour, 0)
			w.late("a-2", true)
			time.Sleep(75 * time.Minute)
			w.is(v1.Secured, string(certs.Steady))
			time.Sleep(35 * time.Minute)
			w.is(v1.Secured, v1.ReasonEnding)
			w.late("a-2", false)
			time.Sleep(time.Minute)
			w.is(v1.Secured, string(certs.Steady))
		},
		"a new CA is asked for": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, clientsRead)
			before := w.names()
			etcd.now.said()
			require.NoError(w, w.patch(`{"spec":{"tls":{"generation":2}}}`))
			time.Sleep(time.Minute)
			w.is(v1.Secured, string(certs.Spreading))
			w.rotated(2)
			for name, uid := range w.names() {
				require.NotEqual(w, before[name], uid, "%s trusts CA 2", name)
			}
			require.Contains(w, fmt.Sprint(etcd.now.said()), "MoveLeader")
			require.Equal(w, w.secret("a-ca").Data[certs.CertKey], w.secret("a-client").Data[certs.BundleKey])
		},
		"CAs are replaced before they end": func(w *world) {
			w.createTLS(time.Hour, 10*time.Minute, 5*time.Minute)
			for number := range int32(4) {
				w.rotated(number + 1)
			}
		},
		"nodes that bring new certificates late, and members that come and go": func(w *world) {
			w.createTLS(time.Hour, 10*time.Minute, 5*time.Minute)
			for i := range 40 {
				w.late(fmt.Sprintf("a-%d", i%3+1), i%2 == 0)
				time.Sleep(time.Duration(30+i%5*20) * time.Second)
				if i%10 == 9 {
					require.NoError(w, w.patch(fmt.Sprintf(`{"spec":{"size":%d}}`, 3+i/10%2*2)))
				}
			}
			require.NoError(w, w.patch(`{"spec":{"size":3}}`))
			for i := range 9 {
				w.late(fmt.Sprintf("a-%d", i+1), false)
			}
			w.settles(3, "3.6.16")
			require.GreaterOrEqual(w, w.status().TLS.CA, int32(1))
		},
		"a new version while the CA is replaced": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, clientsRead)
			require.NoError(w, w.patch(`{"spec":{"version":"3.7.3","tls":{"generation":2}}}`))
			w.settles(3, "3.7.3")
			time.Sleep(time.Hour)
			require.EqualValues(w, 2, w.status().TLS.CA)
			w.settles(3, "3.7.3")
		},
		"a pause": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, clientsRead)
			require.NoError(w, w.patch(`{"spec":{"paused":true,"tls":{"generation":2}}}`))
			time.Sleep(time.Hour)
			w.is(v1.Secured, string(certs.Steady))
			require.EqualValues(w, 1, w.status().TLS.CA)
			require.NoError(w, w.patch(`{"spec":{"paused":false}}`))
			w.rotated(2)
		},
		"the Secret of the CA is lost, and found": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, clientsRead)
			pods, ca := w.names(), w.secret("a-ca")
			w.deleteSecret("a-ca")
			time.Sleep(time.Minute)
			w.is(v1.Secured, v1.ReasonNoCA)
			w.is(v1.Available, v1.ReasonQuorum)
			require.Nil(w, w.secret("a-ca"))
			ca.ResourceVersion = ""
			_, err := clientOf[*corev1.Secret](w.T, w.server, secrets).Create(w.Context(), ca, metav1.CreateOptions{})
			require.NoError(w, err)
			time.Sleep(time.Minute)
			w.is(v1.Secured, string(certs.Steady))
			require.Equal(w, pods, w.names())
		},
		"an old copy of the Secret of the CA is brought back": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, clientsRead)
			old := w.secret("a-ca").DeepCopy()
			require.NoError(w, w.patch(`{"spec":{"tls":{"generation":2}}}`))
			w.rotated(2)
			pods, now := w.names(), w.secret("a-ca").DeepCopy()
			w.setSecret(now, old.Data)
			time.Sleep(time.Minute)
			w.is(v1.Secured, v1.ReasonNoCA)
			w.is(v1.Available, v1.ReasonQuorum)
			w.setSecret(now, now.Data)
			time.Sleep(time.Minute)
			w.is(v1.Secured, string(certs.Steady))
			require.Equal(w, pods, w.names())
		},
		"the Secret of the CA is damaged": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, clientsRead)
			ca := w.secret("a-ca").DeepCopy()
			ca.Data[certs.PrivateKey] = []byte("damaged")
			w.setSecret(ca, ca.Data)
			time.Sleep(time.Minute)
			w.is(v1.Secured, v1.ReasonNoCA)
			w.is(v1.Available, v1.ReasonQuorum)
		},
		"the Secret of the CA is lost for good": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, clientsRead)
			w.deleteSecret("a-ca")
			time.Sleep(time.Minute)
			w.mayDistrust()
			require.NoError(w, w.patch(`{"spec":{"tls":{"generation":2}}}`))
			w.settles(3, "3.6.16")
			w.is(v1.Secured, string(certs.Steady))
			require.EqualValues(w, 2, w.status().TLS.CA)
		},
		"the operator is away until all certificates have ended": func(w *world) {
			w.createTLS(time.Hour, 10*time.Minute, 5*time.Minute)
			w.mayDistrust()
			w.link.Inject(func(reconciletest.Request) reconciletest.Fault { return reconciletest.Reset })
			time.Sleep(5 * time.Hour)
			w.link.Inject(nil)
			time.Sleep(10 * time.Minute)
			w.settles(3, "3.6.16")
			w.is(v1.Secured, string(certs.Steady))
			require.Greater(w, w.status().TLS.CA, int32(1))
		},
		"all Secrets are lost": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, clientsRead)
			for _, name := range []string{"a-ca", "a-client", "a-1", "a-2", "a-3"} {
				w.deleteSecret(name)
			}
			require.NoError(w, w.pods.Delete(w.Context(), "a-2", metav1.DeleteOptions{}))
			time.Sleep(time.Minute)
			w.is(v1.Secured, v1.ReasonNoCA)
			require.NotContains(w, w.names(), "a-2", "a pod that trusts nobody is not made")
			w.mayDistrust()
			require.NoError(w, w.patch(`{"spec":{"tls":{"generation":2}}}`))
			w.settles(3, "3.6.16")
		},
		"times that do not fit": func(w *world) {
			w.createTLS(fiveYears, ninetyDays, clientsRead)
			for _, patch := range []string{`{"caSeconds":100,"certificateSeconds":50}`,
				`{"caSeconds":700,"certificateSeconds":100,"clientSeconds":0}`, `{"clientSeconds":157680000}`,
				`{"certificateSeconds":1}`, `{"generation":0}`} {
				require.ErrorContains(w, w.patch(`{"spec":{"tls":`+patch+`}}`), "spec.tls", patch)
			}
		},
		"TLS comes and goes with the cluster only": func(w *world) {
			w.create(3, "3.6.16")
			require.ErrorContains(w, w.patch(`{"spec":{"tls":{}}}`), "tls is for new clusters only")
		},
	} {
		t.Run(what, func(t *testing.T) { inMemory(t, test) })
	}
}

var secrets = corev1.SchemeGroupVersion.WithResource("secrets")

// setSecret writes the content of a Secret, whatever it has.
func (w *world) setSecret(secret *corev1.Secret, data map[string][]byte) {
	secret = secret.DeepCopy()
	secret.ResourceVersion, secret.Data = "", data
	_, err := clientOf[*corev1.Secret](w.T, w.server, secrets).Update(w.Context(), secret, metav1.UpdateOptions{})
	require.NoError(w, err)
}

func (w *world) deleteSecret(name string) {
	require.NoError(w, clientOf[*corev1.Secret](w.T, w.server, secrets).Delete(w.Context(), name,
		metav1.DeleteOptions{}))
}

// late sets whether a node does not bring new certificates to a pod.
func (w *world) late(pod string, late bool) {
	etcd.now.lock.Lock()
	etcd.now.late[pod] = late
	etcd.now.lock.Unlock()
	if w.names()[pod] != "" {
		w.nudge(pod)
	}
}

// TestKilledWhileTheCAIsReplaced kills the operator after each of its writes. The members accept each other all the
// time.
func TestKilledWhileTheCAIsReplaced(t *testing.T) {
	var armed atomic.Bool
	killed := 0
	operate := func(ctx context.Context, link *reconciletest.Link) error {
		for ctx.Err() == nil && killed < 1000 {
			life, kill := context.WithCancel(ctx)
			cfg := link.Config()
			cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return oneWrite{rt, &armed, kill, new(atomic.Int32)}
			})
			err := start(life, cfg)
			kill()
			if err != nil {
				return err
			}
			killed++
		}
		return nil
	}
	inMemoryWith(t, operate, func(w *world) {
		w.createTLS(fiveYears, ninetyDays, clientsRead)
		armed.Store(true)
		require.NoError(w, w.patch(`{"spec":{"tls":{"generation":2}}}`))
		w.rotated(2)
		armed.Store(false)
	})
	require.Greater(t, killed, 10)
	t.Logf("the operator was started %d times", killed)
}

// dump is all objects of a resource as JSON.
func dump[T reconciletest.Object](w *world, resource string) string {
	text, err := json.Marshal(reconciletest.List[T](w.server, resource, "default"))
	require.NoError(w, err)
	return string(text)
}

// written is what a log has.
type written struct {
	lock sync.Mutex // guards text
	text strings.Builder
}

func (w *written) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.text.Write(p)
}

func (w *written) String() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.text.String()
}

// TestKeysAreNotTold looks for private keys wherever they do not belong: in the log, and in all objects but Secrets.
func TestKeysAreNotTold(t *testing.T) {
	var log written
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	var level klog.Level
	require.NoError(t, level.Set("5"))
	defer func() {
		klog.LogToStderr(true)
		require.NoError(t, level.Set("0"))
	}()
	inMemory(t, func(w *world) {
		w.createTLS(fiveYears, ninetyDays, clientsRead)
		damaged := w.secret("a-ca").DeepCopy()
		kept := damaged.Data[certs.PrivateKey]
		damaged.Data[certs.PrivateKey] = append([]byte("x"), kept...)
		w.setSecret(damaged, damaged.Data)
		time.Sleep(time.Minute)
		w.is(v1.Secured, v1.ReasonNoCA)
		told := dump[*corev1.Pod](w, "pods") + dump[*corev1.ConfigMap](w, "configmaps") +
			dump[*corev1.Event](w, "events") + dump[*v1.EtcdCluster](w, "etcdclusters.etcd.example.com")
		require.Contains(w, told, "a-ca")
		klog.Flush()
		for _, name := range []string{"a-ca", "a-client", "a-1", "a-2", "a-3"} {
			for key, value := range w.secret(name).Data {
				if !strings.HasSuffix(key, ".key") {
					continue
				}
				for _, line := range strings.Split(string(value), "\n") {
					if len(line) > 40 {
						require.NotContains(w, told+log.String(), line)
					}
				}
			}
		}
	})
	require.NotEmpty(t, log.String())
}
