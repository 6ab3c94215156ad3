//! `programs FROM COUNT`: prints random programs. `programs FROM COUNT FILE`: writes them as the
//! executor reads them.

use faultless_fuzz::{Program, draw, encode_all};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| arguments.get(place).and_then(|text| text.parse().ok());
    let (Some(from), Some(count)) = (number(0), number(1)) else {
        eprintln!("usage: programs FROM COUNT [FILE]");
        return Ok(());
    };
    let programs: Vec<Program> = (from..).take(count as usize).map(draw::program).collect();
    match arguments.get(2) {
        Some(file) => std::fs::write(file, encode_all(&programs)),
        None => {
            for program in programs {
                println!("{program}");
            }
            Ok(())
        }
    }
}
