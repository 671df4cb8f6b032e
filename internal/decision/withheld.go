package decision

// Withheld says why a hint was not sent to Envoy. The set is closed. A record with it has
// the decision's own reason and replica: the hint that Envoy did not get.
type Withheld string

const (
	WithheldNot      Withheld = ""
	WithheldOptedOut Withheld = "opted_out" // the request opted out
	WithheldShadow   Withheld = "shadow"    // no request gets a hint
	WithheldShare    Withheld = "share"     // the request is outside the share that gets hints
)

// AllWithheld returns every value but WithheldNot.
func AllWithheld() []Withheld { return []Withheld{WithheldOptedOut, WithheldShadow, WithheldShare} }

// InTrial reports whether chance or the operator withheld the hint, and not the request
// itself: such requests are compared with requests that got their hint.
func (w Withheld) InTrial() bool { return w == WithheldShadow || w == WithheldShare }

// ForClients returns the code of d that a client may see.
func (d *Decision) ForClients() string {
	if d.Withheld != "" {
		return ForClientsNotRouted
	}
	return d.Reason.ForClients()
}

// Withhold records in rec and d that the hint of d is not sent. A decision without a
// replica has none to withhold.
func (d *Decision) Withhold(rec *Record, why Withheld) {
	if why == WithheldNot || d.Chosen == "" {
		return
	}
	d.Withheld, rec.Withheld = why, why
	d.Chosen, d.Rank = "", ""
}
