package payments

import (
	"strconv"
	"strings"
)

// usualExponent is how many decimals most currencies have.
const usualExponent = 2

// exponents are the currencies of ISO 4217 (list one) whose minor unit is not a hundredth. Amounts of providers are in
// these units. The tables of golang.org/x/text/currency are made for display and differ (0 decimals for IQD, PKR or
// RSD), which would misprint an amount by a factor of 100 or 1000.
var exponents = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0,
	"UYI": 0, "VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
	"CLF": 4, "UYW": 4,
}

// MoneyText is an amount of minor units as people read it: 1999 of EUR are "19.99 EUR". Without a currency, whose
// minor unit is not known, there is no amount: "".
func MoneyText(amount int64, currency string) string {
	if currency == "" {
		return ""
	}
	decimals, unusual := exponents[currency]
	if !unusual {
		decimals = usualExponent
	}
	sign, digits := "", strconv.FormatInt(amount, 10)
	if amount < 0 {
		sign, digits = "-", digits[1:]
	}
	if decimals > 0 {
		digits = strings.Repeat("0", max(0, decimals+1-len(digits))) + digits
		at := len(digits) - decimals
		digits = digits[:at] + "." + digits[at:]
	}
	return sign + digits + " " + currency
}
