package reconciletest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The addresses of Services are those of this network, but for its own and that of everybody in it. The server draws
// none of the first ones, which are for clients that choose one.
var (
	serviceNetwork = netip.MustParsePrefix("10.96.0.0/12")
	firstAddress   = netip.MustParseAddr("10.96.0.1")
)

const chosenAddresses = 256

// addresses gives a Service its address. What is wrong with one that the client has chosen is said before all else.
func (d *draw) addresses() error {
	spec := &d.service.Spec
	if spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if d.was != nil && d.was.IPFamilyPolicy != nil {
		orDefault(&spec.IPFamilyPolicy, *d.was.IPFamilyPolicy)
	}
	orDefault(&spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack)
	var was []string
	if d.was != nil {
		was = d.was.ClusterIPs
	}
	if errs := validateAddresses(*spec, was); len(errs) > 0 && !d.free {
		return d.invalid(errs...)
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if isHeadless(*spec) || d.was != nil && d.was.Type != corev1.ServiceTypeExternalName {
		return nil
	}
	for _, ip := range spec.ClusterIPs {
		if err := d.takeAddress(ip); err != nil {
			return d.invalid(field.Invalid(field.NewPath("spec", "clusterIPs"), spec.ClusterIPs,
				fmt.Sprintf("failed to allocate IP %s: %v", ip, err)))
		}
	}
	if len(spec.ClusterIPs) > 0 {
		return nil
	}
	ip, err := d.nextAddress()
	spec.ClusterIP, spec.ClusterIPs = ip, []string{ip}
	return err
}

func (d *draw) takeAddress(ip string) error {
	address, err := netip.ParseAddr(ip)
	if err != nil {
		return nil // which the checks say
	}
	last := !serviceNetwork.Contains(address.Next())
	if !d.free && (!serviceNetwork.Contains(address) || address == serviceNetwork.Addr() || last) {
		return errRange
	}
	if d.dry {
		return nil // a real server does not look, either
	}
	return d.take(drawn{address: address})
}

// nextAddress takes one that nobody has. A dry run gets that of the network, which is no address.
func (d *draw) nextAddress() (string, error) {
	if d.dry {
		return serviceNetwork.Addr().String(), nil
	}
	pool := &d.server.services
	pool.mu.Lock()
	defer pool.mu.Unlock()
	network, size := serviceNetwork.Addr().As4(), int64(1)<<(32-serviceNetwork.Bits())
	candidates := func(yield func(drawn) bool) {
		for n := range around(chosenAddresses, size-2, pool.addresses) {
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(network[:])+uint32(n))
			if !yield(drawn{address: netip.AddrFrom4(b)}) {
				return
			}
		}
	}
	var it drawn
	if !d.firstLocked(candidates, &it) {
		return "", full("a serviceIP")
	}
	pool.addresses++
	pool.drewLocked(it)
	return it.address.String(), nil
}

// keepAddress gives an update the address that it leaves out. An old client knows of the singular field only.
func keepAddress(spec *corev1.ServiceSpec, was corev1.ServiceSpec) {
	const none = corev1.ServiceTypeExternalName
	if spec.Type != none && was.Type != none {
		orValue(&spec.ClusterIP, was.ClusterIP)
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = was.ClusterIPs
		}
	}
	if spec.ClusterIP == was.ClusterIP {
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = was.ClusterIPs
		}
		return
	}
	if !slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
		return
	}
	if spec.ClusterIPs = nil; spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
}

// dropAddress takes the address out of an update to a type that has none, unless the client sets another one.
func dropAddress(spec *corev1.ServiceSpec, was corev1.ServiceSpec) {
	if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
		spec.ClusterIP, spec.ClusterIPs = "", nil
	}
	if slices.Equal(spec.IPFamilies, was.IPFamilies) {
		spec.IPFamilies = nil
	}
	if setAlike(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
		spec.IPFamilyPolicy = nil
	}
}

// validateAddresses checks the addresses of a Service of a type that has some, and their families. was are those that
// it had, which may stay.
func validateAddresses(spec corev1.ServiceSpec, was []string) (errs field.ErrorList) {
	path := field.NewPath("spec")
	at := path.Child("clusterIPs")
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		errs = append(errs, field.Invalid(at, spec.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		errs = append(errs, field.Required(at, ""))
	case spec.ClusterIP != "" && spec.ClusterIPs[0] != spec.ClusterIP:
		errs = append(errs, field.Invalid(at, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	for i, family := range spec.IPFamilies {
		if slices.Contains(spec.IPFamilies[:i], family) {
			errs = append(errs, field.Duplicate(path.Child("ipFamilies").Index(i), family))
		}
	}
	wrong := false
	for i, ip := range spec.ClusterIPs {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(spec.ClusterIPs) > 1 {
				wrong = true
				errs = append(errs, field.Invalid(at, spec.ClusterIPs, "'None' must be the first and only value"))
			}
			continue
		}
		found := validation.IsValidIPForLegacyField(at.Index(i), ip, true, was)
		wrong = wrong || len(found) > 0
		errs = append(errs, found...)
	}
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(at, spec.ClusterIPs, "may only hold up to 2 values"))
	}
	if !wrong && len(spec.ClusterIPs) > 1 { // they are of one family
		errs = append(errs, field.Invalid(at, spec.ClusterIPs, "may specify no more than one IP for each IP family"))
	}
	return errs
}

// validateSameAddress says that an address may not change.
func validateSameAddress(spec, was corev1.ServiceSpec) field.ErrorList {
	const none = corev1.ServiceTypeExternalName
	if spec.Type == none || was.Type == none || slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "clusterIPs").Index(0), spec.ClusterIPs,
		"may not change once set")}
}

// address is a check of what may be an address of a Service: of IPv4, or none.
func address(v any) bool { return v == corev1.ClusterIPNone || isIPv4(v) }

func isIPv4(v any) bool {
	s, _ := v.(string)
	address, err := netip.ParseAddr(s)
	return err == nil && address.Is4()
}
